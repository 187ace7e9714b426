"""Corrects the offsets of sentences beyond 2 GiB in data that several workers of fairseq-preprocess binarised.

When fairseq merges the workers' files, it sums the sentences' lengths as NumPy's 32-bit integers. Since NumPy 2, a sum
with Python's integers stays 32-bit, so offsets wrap around from 2 GiB on. Training then reads wrong sentences, with
only a RuntimeWarning. This patch converts the merged lengths to Python's integers.
"""

from __future__ import annotations

from typing import Any

from fairseq_compat.patch import Patch, wraps


def keep_lengths_as_python_integers(module: Any) -> None:
    """Wraps `MMapIndexedDatasetBuilder.merge_file_`."""
    builder = module.MMapIndexedDatasetBuilder

    @wraps(builder, "merge_file_")
    def merge_file_(original: Any, self: Any, another_file: Any) -> None:
        before = len(self._sizes)
        original(self, another_file)
        self._sizes[before:] = map(int, self._sizes[before:])


INDEX_OFFSETS = Patch(
    name="index-offsets",
    symptom="fairseq-preprocess --workers N of more than 2 GiB: wrong sentences, RuntimeWarning: overflow",
    after={"fairseq.data.indexed_dataset": keep_lengths_as_python_integers},
)
