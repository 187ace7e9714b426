"""Statistics over seeds: paired differences with interval, test and power, by SciPy (extra `report`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite, sqrt
from statistics import fmean, stdev
from typing import Any

import msgspec

from rskip.machine.extras import extra

CONFIDENCE = 0.95  # confidence level of intervals; tests use the level 1 - CONFIDENCE
POWER = 0.8


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """The difference of two runs over the seeds that both have.

    :param seeds: the common seeds, at least one.
    :param mean: mean difference.
    :param std: sample standard deviation of the differences. With one seed, this and the next two are None.
    :param interval: confidence interval of the mean.
    :param p: p-value of the paired two-sided t-test. Also None if all differences are equal.
    """

    seeds: tuple[int, ...]
    mean: float
    std: float | None = None
    interval: tuple[float, float] | None = None
    p: float | None = None


def paired_difference(ours: Mapping[int, float], baseline: Mapping[int, float]) -> Difference | None:
    """The difference of `ours` and `baseline`, which have one score per seed; None without a common seed.

    :raises ValueError: a difference is not finite, or a test needs SciPy, which is missing.
    """
    seeds = tuple(sorted(ours.keys() & baseline.keys()))
    differences = [ours[seed] - baseline[seed] for seed in seeds]
    for seed, each in zip(seeds, differences, strict=True):
        if not isfinite(each):
            given = f"{ours[seed]} and {baseline[seed]}"
            raise ValueError(f"the values of seed {seed} are {given}: expected a finite difference")
    if not seeds:
        return None
    mean = fmean(differences)
    if len(seeds) == 1:
        return Difference(seeds=seeds, mean=mean)
    std = stdev(differences)
    if std <= 1e-12 * max(map(abs, differences)):
        return Difference(seeds=seeds, mean=mean, std=0.0)
    test = _scipy_stats().ttest_1samp(differences, 0.0)
    low, high = test.confidence_interval(CONFIDENCE)
    return Difference(seeds=seeds, mean=mean, std=std, interval=(float(low), float(high)), p=float(test.pvalue))


def holm(p: Sequence[float]) -> list[float]:
    """Corrects p-values for multiple comparisons (Holm 1979), in the same order.

    :raises ValueError: a p-value is not from 0 to 1.
    """
    if wrong := [value for value in p if not 0 <= value <= 1]:
        raise ValueError(f"a p-value is {wrong[0]}: expected a number from 0 to 1")
    corrected = [0.0] * len(p)
    largest = 0.0
    for rank, place in enumerate(sorted(range(len(p)), key=lambda place: p[place])):
        largest = max(largest, min(1.0, (len(p) - rank) * p[place]))
        corrected[place] = largest
    return corrected


def detectable(std: float, *, pairs: int, comparisons: int = 1) -> float:
    """The minimum detectable effect: the true difference that a paired t-test detects with the probability POWER.

    The test is two-sided, at the level that Holm's first step requires for the smallest p-value.

    :param std: standard deviation of the differences.
    :param pairs: number of pairs, two or more.
    :raises ValueError: `std`, `pairs` or `comparisons` is out of range, or SciPy is missing.
    """
    if not (isfinite(std) and std >= 0):
        raise ValueError(f"the standard deviation is {std}: expected a finite number of at least 0")
    if pairs < 2 or comparisons < 1:
        raise ValueError(f"{pairs} pairs, {comparisons} comparisons: expected at least 2 pairs and 1 comparison")
    stats = _scipy_stats()
    from scipy.optimize import brentq

    freedom = pairs - 1
    critical = stats.t.isf((1 - CONFIDENCE) / comparisons / 2, freedom)

    def missing(shift: float) -> float:
        shown = stats.nct.sf(critical, freedom, shift)
        return float(shown if isfinite(shown) else 1.0) - POWER  # the other tail is below 1e-4 at the root

    upper = critical
    while missing(upper) < 0:
        upper *= 2
    return float(brentq(missing, 0.0, upper)) * std / sqrt(pairs)


def _scipy_stats() -> Any:
    with extra("report", what="a table with statistics over seeds"):
        import scipy.stats
    return scipy.stats
