"""Lengths of sentence pairs: how often each pair of lengths occurs, and what follows from that."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rskip.corpora.inspection.mmap_sentences import Integers

PERCENTS = (5, 25, 75, 95, 99)
_SHIFT = 32


class PairLengths:
    """Counts of (source length, target length), from which every figure about lengths is computed exactly.

    Its memory grows with the number of different pairs of lengths, not with the number of sentences.
    """

    def __init__(self) -> None:
        self._keys: Integers = np.empty(0, dtype=np.int64)
        self.counts: Integers = np.empty(0, dtype=np.int64)

    def add(self, source: Integers, target: Integers) -> None:
        """Counts the pairs of these lengths."""
        keys, counts = np.unique((source << _SHIFT) | target, return_counts=True)
        self._keys, places = np.unique(np.concatenate([self._keys, keys]), return_inverse=True)
        merged = np.zeros(len(self._keys), dtype=np.int64)
        np.add.at(merged, places, np.concatenate([self.counts, counts]))
        self.counts = merged

    @property
    def source(self) -> Integers:
        """Source length that each of `counts` is for."""
        return self._keys >> _SHIFT

    @property
    def target(self) -> Integers:
        """Target length that each of `counts` is for."""
        return self._keys & ((1 << _SHIFT) - 1)

    def side(self, number: int) -> tuple[Integers, Integers]:
        """The lengths that occur on a side (0: source, 1: target), ascending, and how many sentences have each."""
        lengths, places = np.unique((self.source, self.target)[number], return_inverse=True)
        sentences = np.zeros(len(lengths), dtype=np.int64)
        np.add.at(sentences, places, self.counts)
        return lengths, sentences


@dataclass(frozen=True, kw_only=True)
class LengthFigures:
    """Lengths of one side's sentences, in tokens without the end mark.

    median, percentiles: the smallest length that at least so many per cent of the sentences do not exceed.
    histogram: sentences of each length that occurs, keys ascending.
    """

    tokens: int
    empty: int
    mean: float
    median: int
    percentiles: dict[str, int]
    longest: int
    histogram: dict[str, int]


@dataclass(frozen=True, kw_only=True)
class RatioFigures:
    """Target length divided by source length.

    overall: all target tokens by all source tokens.
    mean, deviation, median, percentiles: over the pairs, without those that have an empty side; the standard
        deviation is that of the pairs themselves. None where there is no such pair.
    with_empty_side: pairs that have one.
    """

    overall: float | None
    mean: float | None
    deviation: float | None
    median: float | None
    percentiles: dict[str, float]
    with_empty_side: int


def length_figures(lengths: Integers, sentences: Integers) -> LengthFigures:
    """Figures of the lengths that occur, ascending, and how many sentences have each; not of none."""
    tokens = int((lengths * sentences).sum())
    return LengthFigures(
        tokens=tokens,
        empty=int(sentences[lengths == 0].sum()),
        mean=tokens / int(sentences.sum()),
        median=int(percentile(lengths, sentences, 50)),
        percentiles={str(percent): int(percentile(lengths, sentences, percent)) for percent in PERCENTS},
        longest=int(lengths[-1]),
        histogram={str(length): count for length, count in zip(lengths.tolist(), sentences.tolist(), strict=True)},
    )


def ratio_figures(pairs: PairLengths) -> RatioFigures:
    """Figures of the ratio of lengths."""
    source, target, counts = pairs.source, pairs.target, pairs.counts
    source_tokens, target_tokens = int((source * counts).sum()), int((target * counts).sum())
    whole = (source > 0) & (target > 0)
    ratios, weights = target[whole] / source[whole], counts[whole]
    order = np.argsort(ratios, kind="stable")
    ratios, weights = ratios[order], weights[order]
    total = int(weights.sum())
    mean = float((ratios * weights).sum() / total) if total else None
    return RatioFigures(
        overall=target_tokens / source_tokens if source_tokens else None,
        mean=mean,
        deviation=float(np.sqrt(((ratios - mean) ** 2 * weights).sum() / total)) if mean is not None else None,
        median=float(percentile(ratios, weights, 50)) if total else None,
        percentiles={str(each): float(percentile(ratios, weights, each)) for each in PERCENTS} if total else {},
        with_empty_side=int(counts[~whole].sum()),
    )


def percentile(values: np.ndarray, counts: Integers, percent: int) -> np.generic:
    """The smallest of the values, which ascend, that at least `percent` % of all occurrences do not exceed."""
    total = int(counts.sum())
    rank = max(1, -(-percent * total // 100))
    return values[np.searchsorted(np.cumsum(counts), rank)]
