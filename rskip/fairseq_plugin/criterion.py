"""A faster label-smoothed cross-entropy for our models: `--criterion rskip_label_smoothed_cross_entropy`."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from fairseq.criterions import register_criterion
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterion,
    LabelSmoothedCrossEntropyCriterionConfig,
)

from rskip.cpu.loss import cross_entropy_kernel
from rskip.transformer.label_smoothing import label_smoothed_cross_entropy


@register_criterion("rskip_label_smoothed_cross_entropy", dataclass=LabelSmoothedCrossEntropyCriterionConfig)
class ChunkedLabelSmoothedCrossEntropyCriterion(LabelSmoothedCrossEntropyCriterion):
    """Fairseq's label_smoothed_cross_entropy with its flags, computed without the full logits.

    It uses fairseq's own computation for models that are not rskip's, if the logits are needed (--report-accuracy,
    --ignore-prefix-size), and on a CPU in float16 or under autocast.
    """

    def forward(self, model: Any, sample: dict[str, Any], reduce: bool = True) -> tuple[torch.Tensor, int, dict]:
        if not getattr(model, "computes_loss", False):
            return super().forward(model, sample, reduce)
        weight = model.decoder.output_projection.weight
        half = weight.is_cpu and (weight.dtype == torch.float16 or torch.is_autocast_enabled("cpu"))
        if self.report_accuracy or self.ignore_prefix_size > 0 or not reduce or half:
            return super().forward(model, sample, reduce)
        loss, nll = model(
            **sample["net_input"],
            loss=partial(
                label_smoothed_cross_entropy,
                target=sample["target"],
                epsilon=self.eps,
                padding_index=self.padding_idx,
                find_kernel=cross_entropy_kernel,
            ),
        )
        sample_size = sample["target"].size(0) if self.sentence_avg else sample["ntokens"]
        logging_output = {
            "loss": loss.detach(),
            "nll_loss": nll,
            "ntokens": sample["ntokens"],
            "nsentences": sample["target"].size(0),
            "sample_size": sample_size,
        }
        return loss, sample_size, logging_output

    @classmethod
    def reduce_metrics(cls, logging_outputs: list[dict[str, Any]]) -> None:
        """Logs like fairseq, but copies the sums from a GPU in one transfer; fairseq waits for each."""
        super().reduce_metrics(_on_host(logging_outputs))


def _on_host(logs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    sums = [(log, name) for log in logs for name, value in log.items() if torch.is_tensor(value) and not value.is_cpu]
    if not sums:
        return logs
    values = torch.stack([log[name].double() for log, name in sums]).cpu()
    found = {(id(log), name): value for (log, name), value in zip(sums, values, strict=True)}
    return [{name: found.get((id(log), name), value) for name, value in log.items()} for log in logs]
