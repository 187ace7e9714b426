"""Statistics of lengths and vocabularies, against plain Python over all the single values."""

from __future__ import annotations

import math
import random
import statistics
from collections import Counter

import numpy as np
import pytest

from rskip.corpora.inspection.inspection import (
    PERCENTS,
    length_statistics,
    percentile,
    ratio_statistics,
    vocabulary_statistics,
)
from rskip.text import Dictionary


def nearest_rank(values: list, percent: int):
    """The definition: the value at rank ceil(percent/100 · n) of the sorted values."""
    return sorted(values)[max(1, math.ceil(percent * len(values) / 100)) - 1]


def test_lengths_and_ratios():
    draw = random.Random(3)
    pairs = [(draw.randrange(25), draw.choice([0, 1, 2, 3, 40, 3_000_000_000 % 2**31])) for _ in range(700)]
    for side in (0, 1):
        values = [pair[side] for pair in pairs]
        result = length_statistics(Counter(pairs), side)
        assert result["tokens"] == sum(values)
        assert result["empty"] == values.count(0)
        assert result["mean"] == pytest.approx(statistics.fmean(values), rel=1e-12)
        assert result["median"] == nearest_rank(values, 50)
        assert result["percentiles"] == {str(percent): nearest_rank(values, percent) for percent in PERCENTS}
        assert result["longest"] == max(values)
        assert result["histogram"] == {str(length): values.count(length) for length in sorted(set(values))}
    result = ratio_statistics(Counter(pairs))
    ratios = [target / source for source, target in pairs if source and target]
    assert result["with_empty_side"] == 700 - len(ratios)
    assert result["overall"] == sum(pair[1] for pair in pairs) / sum(pair[0] for pair in pairs)
    assert result["mean"] == pytest.approx(statistics.fmean(ratios), rel=1e-12)
    assert result["median"] == nearest_rank(ratios, 50)
    assert result["percentiles"] == {str(percent): nearest_rank(ratios, percent) for percent in PERCENTS}


def test_percentiles_of_few_values():
    values, counts = np.array([3, 5, 8]), np.array([1, 2, 1])
    assert [int(percentile(values, counts, percent)) for percent in (0, 25, 26, 50, 75, 76, 100)] == [
        3, 3, 5, 5, 5, 8, 8,
    ]  # fmt: skip
    assert percentile(values[:0], counts[:0], 50) == 0


def test_vocabulary():
    dictionary = Dictionary(["a", "b", "c", "d", "madeupwords", "madeupword0000", "madeupword0001"])
    result = vocabulary_statistics(dictionary, np.array([6, 3, 1]))
    assert (result["size"], result["padding"]) == (11, 2)
    assert (result["used"], result["used_rate"], result["once"]) == (3, 3 / 5, 1)
    assert result["coverage"] == {"50": 1, "90": 2, "99": 3, "100": 3}
    frequencies = np.array([50, 30, 10, 9, 1])  # a bound is reached exactly
    assert vocabulary_statistics(dictionary, frequencies)["coverage"] == {"50": 1, "90": 3, "99": 4, "100": 5}
    without = vocabulary_statistics(dictionary, None)
    assert (without["size"], without["used"], without["coverage"]) == (11, None, None)
