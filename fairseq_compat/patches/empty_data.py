"""Names the limits in one line if no training example fits a batch, as with `--max-tokens 1`."""

from __future__ import annotations

from typing import Any

from fairseq_compat.one_line_errors import UsageError
from fairseq_compat.patch import Patch


def name_limits(module: Any) -> None:
    """Wraps `EpochBatchIterator.first_batch`."""
    original = module.EpochBatchIterator.first_batch.fget

    def first_batch(self: Any) -> Any:
        if len(self.frozen_batches) == 0:
            raise UsageError(
                "no training example fits a batch: give more data, or a larger --max-tokens, --max-source-positions "
                "or --max-target-positions"
            )
        return original(self)

    first_batch.names_limits = True  # type: ignore[attr-defined]
    module.EpochBatchIterator.first_batch = property(first_batch)


def active() -> bool:
    from fairseq.data.iterators import EpochBatchIterator

    return getattr(EpochBatchIterator.first_batch.fget, "names_limits", False)


EMPTY_DATA = Patch(
    name="empty-data",
    modules=("fairseq.data.iterators",),
    symptom="--max-tokens below the shortest sentence: a traceback that ends in Exception: The dataset is empty",
    after=name_limits,
    active=active,
)
