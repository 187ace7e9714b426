"""`--criterion self_critical`: samples captions and makes those that are better than a baseline more probable.

B images, K captions of each, T caption length.
"""

# fairseq reads a configuration's types themselves, not their names: no postponed annotations here.
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from fairseq import metrics
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
from torch import Tensor

from fairseq_compat.one_line_errors import UsageError
from rskip.captioning.fairseq.task import CaptioningTask
from rskip.generation import SearchOptions


@dataclass
class SelfCriticalConfig(FairseqDataclass):
    """Flags of the criterion."""

    samples: int = field(
        default=5,
        metadata={
            "help": "captions drawn for each image; the baseline of each is the mean reward of the others, or with "
            "1 that of the greedy caption (Rennie et al. 2017)"
        },
    )


@register_criterion("self_critical", dataclass=SelfCriticalConfig)
class SelfCriticalCriterion(FairseqCriterion):
    """Self-critical sequence training (Rennie et al. 2017, Eq. 8), with CIDEr-D as the reward r:

        L = - Σ_k (r_k - b_k) log p(w_k),    b_k = Σ_{j≠k} r_j / (K - 1),    for K = 1: b = r(greedy caption)

    as a mean over captions. Since b_k doesn't depend on caption k, the gradient is that of the expected reward.
    Captions are sampled without dropout. To start from a model that was trained with cross-entropy, use
    --finetune-from-model, or --restore-file with --reset-optimizer.
    """

    def __init__(self, task: CaptioningTask, samples: int) -> None:
        super().__init__(task)
        if not isinstance(task, CaptioningTask):
            raise UsageError("--criterion self_critical needs --task captioning")
        if samples < 1:
            raise UsageError(f"--samples is {samples}: expected 1 or more")
        self.samples = samples

    def forward(self, model: Any, sample: dict[str, Any], reduce: bool = True) -> tuple[Tensor, int, dict[str, Any]]:
        """The loss summed over captions, their number, and values to log.

        Outside training, the loss is minus the reward of the greedy caption of each image.
        """
        if not model.training:
            scores = self.task.score_captions(sample, model, SearchOptions(beam=1))
            return self._result(-torch.tensor(scores.sum()), len(scores), sample, reward=float(scores.sum()))
        rewards, baseline, captions, chosen = self.draw(model, sample)
        prefix = captions.roll(1, 1)
        prefix[:, 0] = self.task.dictionary.eos()
        inputs = {**sample["net_input"], "prev_output_tokens": prefix, "counts": None}
        logits = model(**inputs)[0]  # (B·K, T, V)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        padding = torch.arange(logits.size(2), device=logits.device) == self.padding_idx  # is never drawn
        log_probabilities = logits.masked_fill(padding, -torch.inf).log_softmax(2)
        of_tokens = log_probabilities.gather(2, captions[:, :, None])[:, :, 0].masked_fill(~chosen, 0)  # (B·K, T)
        advantage = (rewards - baseline).to(of_tokens)
        loss = -(advantage * of_tokens.sum(1)).sum()
        return self._result(loss, len(captions), sample, reward=float(rewards.sum()))

    def draw(self, model: Any, sample: Mapping[str, Any]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Samples captions for a batch, with the captions of an image in sequence.

        :returns: rewards (B·K,), baselines (B·K,), tokens (B·K, T) with end and padding, and chosen (B·K, T): whether
            the model sampled the token, which is false for an end token at the maximum length.
        """
        seed = int(torch.randint(2**31, ()))  # from the generator that fairseq seeds for each update
        count = self.samples
        options = SearchOptions(beam=count, nbest=count, sampling=True, min_length=0, seed=seed)
        found = self.task.search(sample, model, options)
        tokens = [each.tokens for hypotheses in found for each in hypotheses]
        names = [name for name in sample["names"] for _ in range(count)]
        device = sample["target"].device
        rewards = torch.from_numpy(self.task.rewards(names, tokens)).to(device)
        if count == 1:
            greedy = self.task.search(sample, model, SearchOptions(beam=1))
            baseline = torch.from_numpy(self.task.rewards(names, [best.tokens for best, *_ in greedy])).to(device)
        else:
            of_image = rewards.view(-1, count)
            baseline = ((of_image.sum(1, keepdim=True) - of_image) / (count - 1)).flatten()
        captions = torch.nn.utils.rnn.pad_sequence(tokens, batch_first=True, padding_value=self.padding_idx).to(device)
        chosen = captions.ne(self.padding_idx)
        chosen[:, self.task.cfg.max_caption_tokens :] = False
        return rewards, baseline, captions, chosen

    def _result(
        self, loss: Tensor, count: int, sample: Mapping[str, Any], *, reward: float
    ) -> tuple[Tensor, int, dict[str, Any]]:
        logging_output = {
            "loss": loss.detach(),
            "reward": reward,
            "ntokens": sample["ntokens"],
            "nsentences": sample["nsentences"],
            "sample_size": count,
        }
        return loss, count, logging_output

    @staticmethod
    def reduce_metrics(logging_outputs: Sequence[Mapping[str, Any]]) -> None:
        """The mean loss and reward over captions."""
        count = sum(float(each["sample_size"]) for each in logging_outputs)
        for name in ("loss", "reward"):
            total = sum(float(each[name]) for each in logging_outputs)
            metrics.log_scalar(name, total / max(count, 1), count, round=4)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """True, since logged values are sums."""
        return True
