"""Two texts that are translations of each other, read side by side."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import cast

from rskip.corpora.corpus import Pair
from rskip.corpora.formats import read_text

TextFile = tuple[Path, str]
"""A file, and its format: one of `rskip.corpora.formats.FORMATS`."""


def read_pairs(source: TextFile, target: TextFile, *, sentences: int | None) -> Iterator[Pair]:
    """Raw sentences of both texts, which must have the same number.

    :param sentences: how many both must have; None: not known.
    :raises ValueError: as `read_text`; or an empty text, another number of sentences, or unequal numbers.
    """
    counts = [0, 0]
    for pair in zip_longest(read_text(*source), read_text(*target)):
        if pair[0] is None or pair[1] is None:
            counts[pair[0] is None] += 1
            continue
        counts[0] += 1
        counts[1] += 1
        yield cast(Pair, pair)
    expected = "" if sentences is None else f": expected {sentences:,} sentences"
    if 0 in counts:
        raise ValueError(f"{(source, target)[counts.index(0)][0]} is empty{expected}")
    if counts[0] != counts[1]:
        raise ValueError(
            f"{source[0]} has {counts[0]:,} lines and {target[0]} has {counts[1]:,}: "
            "files that translate each other must have the same number"
        )
    if sentences is not None and counts[0] != sentences:
        raise ValueError(f"{source[0]} has {counts[0]:,} sentences{expected.removesuffix(' sentences')}")
