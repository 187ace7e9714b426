"""Finds exact duplicates among the pairs of all chunks."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from rskip.corpora.corpus import Pair
from rskip.extras import extra

with extra("translation", what="a corpus of text"):
    import numpy as np
    from numpy.typing import NDArray

_DIGEST = np.dtype("<u8")


def pair_digest(words: Pair) -> bytes:
    """The pair's digest of 8 bytes (BLAKE2b). Among 36 million pairs, the probability that two share one is 0.00004.

    :param words: both sides, without line feeds.
    """
    return hashlib.blake2b("\n".join(words).encode(), digest_size=_DIGEST.itemsize).digest()


def find_duplicates(digest_files: Sequence[Path]) -> list[NDArray[np.int64]]:
    """The rows of every pair that equals an earlier one, in an earlier file or an earlier row of the same file.

    It sorts the digests of all files in memory, which takes 24 bytes per pair.

    :param digest_files: one file per chunk, in the order of the chunks, with the `pair_digest` of each pair.
    :returns: the rows of each file, ascending, from 0.
    """
    ends = np.cumsum([0, *(path.stat().st_size // _DIGEST.itemsize for path in digest_files)])
    digests = np.empty(ends[-1], dtype=_DIGEST)
    for path, start, end in zip(digest_files, ends, ends[1:], strict=False):
        digests[start:end] = np.fromfile(path, dtype=_DIGEST)
    order = np.argsort(digests, kind="stable")  # equal digests stay in the order of their pairs
    digests = digests[order]
    repeated = np.sort(order[1:][digests[1:] == digests[:-1]])
    parts = np.split(repeated, np.searchsorted(repeated, ends[1:-1])) if len(digest_files) else []
    return [rows - start for rows, start in zip(parts, ends, strict=False)]
