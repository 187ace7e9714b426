"""Offsets of sentences beyond 2 GiB in data that several workers of fairseq-preprocess binarised.

Merging the workers' files, fairseq sums the sentences' lengths as NumPy's 32-bit integers, which a sum with Python's
integers left behind before NumPy 2 and does not since: from 2 GiB on the offsets wrap around, and a training
reads other sentences than were written, after no more than a RuntimeWarning. Merged lengths are made Python's integers.
"""

from __future__ import annotations

import functools
from typing import Any

from fairseq_compat.patch import Patch


def keep_lengths_as_python_integers(module: Any) -> None:
    """Wraps `MMapIndexedDatasetBuilder.merge_file_`."""
    builder = module.MMapIndexedDatasetBuilder
    original = builder.merge_file_

    @functools.wraps(original)
    def merge_file_(self: Any, another_file: Any) -> None:
        before = len(self._sizes)
        original(self, another_file)
        self._sizes[before:] = map(int, self._sizes[before:])

    merge_file_.keeps_lengths = True  # type: ignore[attr-defined]
    builder.merge_file_ = merge_file_


def active() -> bool:
    from fairseq.data.indexed_dataset import MMapIndexedDatasetBuilder

    return getattr(MMapIndexedDatasetBuilder.merge_file_, "keeps_lengths", False)


INDEX_OFFSETS = Patch(
    name="index-offsets",
    modules=("fairseq.data.indexed_dataset",),
    symptom="fairseq-preprocess --workers N of more than 2 GiB: wrong sentences, RuntimeWarning: overflow",
    after=keep_lengths_as_python_integers,
    active=active,
)
