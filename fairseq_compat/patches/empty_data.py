"""Names the limits in one line if examples don't fit.

fairseq-train ends in a traceback if no example fits a batch, as with `--max-tokens 1`. fairseq-eval-lm skips blocks of
text that are longer than the model's positions, and prints the perplexity of the rest, or of nothing. A validation
sentence that is too long ends fairseq-train only after the first epoch, which is lost.
"""

from __future__ import annotations

from typing import Any

from fairseq_compat.one_line_errors import UsageError
from fairseq_compat.patch import Patch, wraps


def name_limits(module: Any) -> None:
    """Wraps `EpochBatchIterator.first_batch`."""
    original = module.EpochBatchIterator.first_batch.fget

    def first_batch(self: Any) -> Any:
        if len(self.frozen_batches) == 0:
            raise UsageError(
                "no example fits a batch: give more data, or a larger --max-tokens, --max-source-positions "
                "or --max-target-positions"
            )
        return original(self)

    module.EpochBatchIterator.first_batch = property(first_batch)


def name_positions(module: Any) -> None:
    """Wraps `LanguageModelingTask.eval_lm_dataloader`."""

    @wraps(module.LanguageModelingTask, "eval_lm_dataloader")
    def eval_lm_dataloader(
        original: Any, self: Any, dataset: Any, *, max_positions: int | None = None, **options: Any
    ) -> Any:
        if max_positions is not None:
            fitting, skipped = dataset.filter_indices_by_size(dataset.ordered_indices(), max_positions)
            if len(skipped) and (self.args.sample_break_mode == "none" or not len(fitting)):
                mode = "" if self.args.sample_break_mode == "none" else "--sample-break-mode none "
                raise UsageError(
                    f"{len(skipped)} of {len(dataset)} samples are longer than the model's {max_positions} positions: "
                    f"give {mode}--tokens-per-sample {max_positions}"
                )
        return original(self, dataset, max_positions=max_positions, **options)


def fit_validation_data(module: Any) -> None:
    """Wraps `fairseq_cli.train.train`, which trains for one epoch."""

    @wraps(module, "train")
    def train(original: Any, cfg: Any, trainer: Any, task: Any, epoch_itr: Any) -> Any:
        if trainer.get_num_updates() == 0 and not cfg.dataset.disable_validation:
            for subset in cfg.dataset.valid_subset.split(","):
                trainer.get_valid_iterator(subset)  # refuses data that don't fit; fairseq keeps it
        return original(cfg, trainer, task, epoch_itr)


EMPTY_DATA = Patch(
    name="empty-data",
    symptom="a traceback (The dataset is empty), or a perplexity of 1.00, if no example is short enough",
    after={
        "fairseq.data.iterators": name_limits,
        "fairseq.tasks.language_modeling": name_positions,
        "fairseq_cli.train": fit_validation_data,
    },
)
