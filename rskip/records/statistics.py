"""Statistics over seeds: differences from a baseline with interval, test and power, by SciPy (extra `report`)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from math import isfinite, sqrt
from statistics import fmean, stdev, variance
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from rskip.extras import extra

CONFIDENCE = 0.95  # confidence level of intervals; tests use the level 1 - CONFIDENCE
POWER = 0.8
POOLED_FREEDOM = 3  # minimum degrees of freedom of a pooled standard deviation
PAIRS = 3  # minimum number of pairs of a paired t-test: two detect only differences of 11.5 standard deviations
DEVIATIONS_DIFFER = "the standard deviations differ (Bartlett's test)"
MOST_SEEDS = 99  # maximum number of seeds in a plan


class Difference(Struct, frozen=True, kw_only=True):
    """A variant's difference from its baseline over seeds.

    :param mean: difference of the means if pooled, else the mean over common seeds.
    :param pairs: number of common seeds.
    :param unpooled: the reason why the standard deviation is not pooled; "" if it is pooled.
    :param std: standard deviation: pooled, or of the paired differences. This and the values below are None without a
        test: with one or two pairs, or if all paired differences are equal.
    :param freedom: its degrees of freedom.
    :param comparisons: number of comparisons that p is corrected for.
    :param interval: confidence interval of the mean: simultaneous for all comparisons if pooled, else for this one.
    :param p: corrected p-value.
    :param detectable: minimum detectable effect: the true difference that the test detects with probability POWER.
    :param needed: seeds of this variant and of the baseline with which the test detects the measured difference with
        probability POWER, if it is the true one. None if it is detected already, or would take more than MOST_SEEDS.
    """

    mean: float
    pairs: int
    unpooled: str = ""
    std: float | None = None
    freedom: int | None = None
    comparisons: int = 0
    interval: tuple[float, float] | None = None
    p: float | None = None
    detectable: float | None = None
    needed: int | None = None

    @property
    def detected(self) -> bool:
        """Whether the test detects the difference."""
        return self.p is not None and self.p < 1 - CONFIDENCE


def compare(
    baseline: Mapping[int, float], variants: Sequence[Mapping[int, float]], same_settings: Sequence[bool]
) -> list[Difference | None]:
    """The variants' differences from a baseline, with one score per seed each; None where there is nothing to compare.

    Dunnett's test compares the variants with the same settings and two seeds or more. It pools their standard deviation
    with the baseline's, if that gives POOLED_FREEDOM and if Bartlett's test does not find the standard deviations
    different. Paired t-tests with Holm's correction compare the other variants, if they have PAIRS common seeds.

    :param same_settings: whether a variant's training differs from the baseline's only in the connection.
    :raises ValueError: a test needs SciPy, which is missing.
    """
    pool = [at for at, scores in enumerate(variants) if same_settings[at] and len(scores) > 1 and len(baseline) > 1]
    why = _why_not_pooled([list(scores.values()) for scores in (baseline, *(variants[at] for at in pool))])
    found: list[Difference | None] = [None] * len(variants)
    if pool and not why:
        for at, pooled in zip(pool, _dunnett(baseline, [variants[at] for at in pool]), strict=True):
            found[at] = pooled
    rest = [at for at, scores in enumerate(variants) if found[at] is None and scores.keys() & baseline]
    for at, paired in zip(rest, _paired(baseline, [variants[at] for at in rest]), strict=True):
        reason = why if at in pool else "one seed" if same_settings[at] else "other settings differ"
        found[at] = replace(paired, unpooled=reason)
    return found


def holm(p: Sequence[float]) -> list[float]:
    """Corrects p-values for multiple comparisons (Holm 1979), in the same order."""
    corrected = [0.0] * len(p)
    largest = 0.0
    for rank, place in enumerate(sorted(range(len(p)), key=lambda place: p[place])):
        largest = max(largest, min(1.0, (len(p) - rank) * p[place]))
        corrected[place] = largest
    return corrected


def dunnett_p(statistic: float, *, sizes: tuple[int, ...], control: int, freedom: int) -> float:
    """The probability that by chance the largest absolute t of several variants against a baseline exceeds `statistic`.

    Dunnett (1955), two-sided. SciPy's `dunnett` integrates at random points, so its p varies by 1e-4.

    :param sizes: number of seeds of each variant; `control`: of the baseline.
    :param freedom: degrees of freedom of the pooled standard deviation.
    """
    import numpy

    special = scipy("special")
    z, of_z = numpy.polynomial.hermite_e.hermegauss(24)  # the baseline's error, which all comparisons share
    v, of_v = numpy.polynomial.legendre.leggauss(32)
    u = (v + 1) / 2
    scale = numpy.sqrt(2 * special.gammaincinv(freedom / 2, u**4) / freedom)  # pooled over true standard deviation
    inside = 1.0
    for size in set(sizes):
        middle, half = sqrt(size / control) * z[:, None], sqrt(1 + size / control) * statistic * scale
        inside = inside * (special.ndtr(middle + half) - special.ndtr(middle - half)) ** sizes.count(size)
    return float(of_z @ (1 - inside) @ (2 * of_v * u**3) / sqrt(2 * numpy.pi))


@cache
def _dunnett_critical(sizes: tuple[int, ...], control: int, freedom: int) -> float:
    """The absolute t from which Dunnett's test detects a difference."""
    t, level = scipy("stats").t, 1 - CONFIDENCE
    one, all_of_them = t.isf(level / 2, freedom), t.isf(level / 2 / len(sizes), freedom)

    def excess(statistic: float) -> float:
        return dunnett_p(statistic, sizes=sizes, control=control, freedom=freedom) - level

    return float(scipy("optimize").brentq(excess, 0.99 * one, 1.01 * all_of_them, xtol=1e-6))


class TTest(NamedTuple):
    """A two-sided t-test: standard error of the difference, the absolute t that is detected, degrees of freedom."""

    error: float
    critical: float
    freedom: float

    def power(self, difference: float) -> float:
        """The probability of detecting a true difference of this size."""
        shown = scipy("stats").nct.sf(self.critical, self.freedom, abs(difference) / self.error)
        return float(shown) if isfinite(shown) else 1.0  # the other tail is below 1e-4 at POWER

    @property
    def detectable(self) -> float:
        """The minimum detectable effect: the true difference that is detected with the probability POWER."""
        brentq = scipy("optimize").brentq
        return float(brentq(lambda each: self.power(each) - POWER, 0.0, (3 * self.critical + 10) * self.error))


def _needed(difference: float, test: Callable[[int], TTest], *, seeds: int) -> int | None:
    """The smallest number of seeds, from `seeds` on, with which a test of so many seeds has POWER."""
    found = bisect_left(range(MOST_SEEDS + 1), True, lo=seeds, key=lambda n: test(n).power(difference) >= POWER)
    return found if found <= MOST_SEEDS else None


def _why_not_pooled(groups: Sequence[Sequence[float]]) -> str:
    if sum(len(group) - 1 for group in groups) < POOLED_FREEDOM:
        return f"fewer than {POOLED_FREEDOM} degrees of freedom"
    if len(groups) == 1:
        return ""
    if not all(map(variance, groups)):
        return "a standard deviation is 0"
    p = scipy("stats").bartlett(*groups).pvalue
    return DEVIATIONS_DIFFER if p < 1 - CONFIDENCE else ""


def _dunnett(baseline: Mapping[int, float], variants: Sequence[Mapping[int, float]]) -> list[Difference]:
    sizes = tuple(len(scores) for scores in variants)
    groups = [list(scores.values()) for scores in (baseline, *variants)]
    freedom = sum(len(group) - 1 for group in groups)
    std = sqrt(sum(variance(group) * (len(group) - 1) for group in groups) / freedom)
    found = []
    for at, scores in enumerate(variants):

        def test(seeds: int, control: int = 0, others: tuple[int, ...] = sizes[:at] + sizes[at + 1 :]) -> TTest:
            """The comparison if this variant had so many seeds, and the baseline `control`, or as many."""
            control = control or seeds
            freedom = sum((seeds, control, *others)) - len(groups)
            critical = _dunnett_critical((seeds, *others), control, freedom)
            return TTest(std * sqrt(1 / seeds + 1 / control), critical, freedom)

        now, mean = test(len(scores), len(baseline)), fmean(scores.values()) - fmean(baseline.values())
        p = dunnett_p(abs(mean) / now.error, sizes=sizes, control=len(baseline), freedom=freedom)
        most = max(len(scores), len(baseline))
        found.append(
            Difference(
                mean=mean,
                pairs=len(scores.keys() & baseline),
                std=std,
                freedom=freedom,
                comparisons=len(variants),
                interval=(mean - now.critical * now.error, mean + now.critical * now.error),
                p=p,
                detectable=now.detectable,
                needed=None if p < 1 - CONFIDENCE else _needed(mean, test, seeds=most),
            )
        )
    return found


def _paired(baseline: Mapping[int, float], variants: Sequence[Mapping[int, float]]) -> list[Difference]:
    pairs = [[scores[seed] - baseline[seed] for seed in scores.keys() & baseline] for scores in variants]
    found = [Difference(mean=fmean(each), pairs=len(each)) for each in pairs]
    tested = [at for at, each in enumerate(pairs) if len(each) >= PAIRS and stdev(each) > 1e-12 * max(map(abs, each))]
    if not tested:
        return found
    stats = scipy("stats")
    results = [stats.ttest_1samp(pairs[at], 0.0) for at in tested]
    for at, result, p in zip(tested, results, holm([float(each.pvalue) for each in results]), strict=True):
        std, seeds, mean = stdev(pairs[at]), len(pairs[at]), found[at].mean

        def test(seeds: int, std: float = std) -> TTest:
            critical = stats.t.isf((1 - CONFIDENCE) / len(tested) / 2, seeds - 1)
            return TTest(std / sqrt(seeds), float(critical), seeds - 1)

        low, high = result.confidence_interval(CONFIDENCE)
        found[at] = replace(
            found[at],
            std=std,
            freedom=seeds - 1,
            comparisons=len(tested),
            interval=(float(low), float(high)),
            p=p,
            detectable=test(seeds).detectable,
            needed=None if p < 1 - CONFIDENCE else _needed(mean, test, seeds=seeds),
        )
    return found


def scipy(module: str) -> Any:
    """A module of SciPy.

    :raises MissingExtra: SciPy is missing.
    """
    with extra("report", what="a table with statistics over seeds"):
        return import_module(f"scipy.{module}")
