"""Differences over seeds: SciPy's own numbers, published examples, simulated power, what few seeds can't say."""

from __future__ import annotations

import sys
from math import sqrt

import pytest

from rskip.records.statistics import Difference, compare, dunnett_p, holm

# blood counts, control and two drugs: Dunnett (1955) and the documentation of SciPy's `dunnett`
CONTROL = [7.40, 8.50, 7.20, 8.24, 9.84, 8.32]
DRUGS = [9.76, 8.80, 7.68, 9.36], [12.80, 9.68, 12.16, 9.20, 10.55]


def scores(values: list[float]) -> dict[int, float]:
    return dict(enumerate(values, start=1))


def differences(baseline: list[float], *variants: list[float], alike: bool = True) -> list[Difference]:
    found = compare(scores(baseline), list(map(scores, variants)), [alike] * len(variants))
    assert all(found)
    return [each for each in found if each]


def test_dunnetts_own_example_with_the_pooled_deviation_by_hand() -> None:
    stats = pytest.importorskip("scipy.stats")
    one, two = differences(CONTROL, *DRUGS)
    squares = sum(sum((value - sum(group) / len(group)) ** 2 for value in group) for group in (CONTROL, *DRUGS))
    assert one.freedom == two.freedom == 12 and one.std == two.std == pytest.approx(sqrt(squares / 12))
    assert (one.mean, two.mean) == (pytest.approx(0.65), pytest.approx(2.6280, abs=1e-4))
    assert two.interval and one.interval and one.interval[0] < 0 < two.interval[0]
    theirs = stats.dunnett(*DRUGS, control=CONTROL)
    assert (one.p, two.p) == pytest.approx(tuple(theirs.pvalue), abs=5e-4)
    assert (one.p, two.p) == pytest.approx((0.6201, 0.0059), abs=5e-4)
    assert [one.interval[1], two.interval[1]] == pytest.approx(theirs.confidence_interval().high, rel=2e-3)
    assert not one.unpooled and one.comparisons == 2


def test_dunnetts_tables_and_the_t_test_as_its_special_case() -> None:
    stats = pytest.importorskip("scipy.stats")
    # Dunnett (1964), two-sided, 5 %: comparisons, degrees of freedom, critical value
    for comparisons, freedom, critical in ((2, 5, 3.03), (2, 10, 2.57), (3, 12, 2.68), (4, 20, 2.65), (9, 60, 2.77)):
        found = dunnett_p(critical, sizes=(7,) * comparisons, control=7, freedom=freedom)
        assert found == pytest.approx(0.05, abs=6e-4)
    for statistic, size, control, freedom in ((2.0, 2, 3, 3), (5.11, 3, 3, 4), (3.0, 10, 2, 10), (30.0, 3, 3, 4)):
        p = dunnett_p(statistic, sizes=(size,), control=control, freedom=freedom)
        assert p == pytest.approx(2 * stats.t.sf(statistic, freedom), rel=1e-5)
    (two,) = differences([19.3, 19.5, 19.6], [21.1, 20.6, 20.3])
    assert two.p == pytest.approx(stats.ttest_ind([21.1, 20.6, 20.3], [19.3, 19.5, 19.6]).pvalue, rel=1e-6)


def test_the_power_of_a_pooled_test_by_simulation() -> None:
    numpy, stats = pytest.importorskip("numpy"), pytest.importorskip("scipy.stats")
    optimize = pytest.importorskip("scipy.optimize")
    baseline, *variants = [1.0, 2.0, 3.0], [1.5, 2.5, 3.5], [1.2, 2.2, 3.2], [0.9, 1.9, 2.9]
    first = differences(baseline, *variants)[0]
    assert (first.std, first.freedom) == (pytest.approx(1.0), 8) and first.interval and first.detectable
    critical = (first.interval[1] - first.mean) / sqrt(2 / 3)
    generator = numpy.random.default_rng(1)
    means = generator.normal([[0.0], [first.detectable]], 1 / sqrt(3), (2, 200_000))
    stds = numpy.sqrt(generator.chisquare(8, 200_000) / 8)
    assert numpy.mean((means[1] - means[0]) / (stds * sqrt(2 / 3)) > critical) == pytest.approx(0.8, abs=0.004)
    # and the smallest number of seeds that detects the measured difference
    assert first.needed
    for seeds, enough in ((first.needed, True), (first.needed - 1, False)):
        freedom = 8 + 2 * (seeds - 3)

        def excess(t: float, seeds: int = seeds, freedom: int = freedom) -> float:
            return dunnett_p(t, sizes=(seeds, 3, 3), control=seeds, freedom=freedom) - 0.05

        power = stats.nct.sf(optimize.brentq(excess, 1.5, 4.0), freedom, first.mean / sqrt(2 / seeds))
        assert (power >= 0.8) == enough


def test_what_is_not_alike_is_not_pooled_and_is_compared_in_pairs() -> None:
    pytest.importorskip("scipy")
    # Student 1908: additional hours of sleep with two drugs, t = 4.0621, p = 0.002833, interval 0.70 to 2.46
    first = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
    second = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
    (found,) = compare(scores(first) | {99: 7.0}, [scores(second)], [False])
    assert found is not None and found.pairs == 10 and found.interval is not None
    assert found.mean == pytest.approx(1.58) and found.p == pytest.approx(0.002833, abs=5e-7)
    assert found.interval == pytest.approx((0.7001142, 2.4598858), abs=5e-8)
    assert (found.unpooled, found.freedom, found.comparisons) == ("other settings differ", 9, 1)
    # a variant of another kind changes nothing for the others
    mine, theirs, others = [1.0, 2.0, 4.0], [2.0, 4.0, 5.0], [90.0, 20.0, 50.0]
    alike, other = compare(scores(mine), [scores(theirs), scores(others)], [True, False])
    assert [alike] == differences(mine, theirs) and other and other.freedom == 2


def test_unequal_deviations_and_few_degrees_of_freedom_are_not_pooled() -> None:
    pytest.importorskip("scipy")
    found = differences([5.851, 5.708, 5.819], [4.835, 4.844, 4.840], [4.865, 4.864, 4.867])
    assert {each.unpooled for each in found} == {"the standard deviations differ (Bartlett's test)"}
    assert {each.freedom for each in found} == {2} and {each.comparisons for each in found} == {2}
    few = differences([1.0, 2.0], [3.0, 4.5])
    assert few == [Difference(mean=2.25, pairs=2, unpooled="fewer than 3 degrees of freedom")]
    (flat,) = differences([1.0, 2.0, 4.0], [3.0, 3.0, 3.0])
    assert flat.unpooled == "a standard deviation is 0" and flat.freedom == 2


def test_few_pairs_are_no_comparison_and_equal_differences_are_nothing_to_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.stats", None)
    found = compare({1: 37.5, 3: 1.0}, [{1: 38.0, 2: 1.0}, {2: 0.3}, {1: 37.0}], [False, False, True])
    assert [each and (each.mean, each.pairs, each.p) for each in found] == [(0.5, 1, None), None, (-0.5, 1, None)]
    assert [each and each.unpooled for each in found] == ["other settings differ", None, "one seed"]
    (same,) = compare({1: 0.2, 2: 0.3, 3: 0.4}, [{1: 0.3, 2: 0.4, 3: 0.5}], [False])
    assert same is not None and (same.std, same.interval, same.p) == (None, None, None)
    for alike in (True, False):
        with pytest.raises(ValueError, match=r"needs scipy: install the extra report with pip"):
            differences([0.2, 0.3, 0.9], [0.3, 0.5, 0.2], alike=alike)


def test_holm_multiplies_by_the_comparisons_that_are_left() -> None:
    # statsmodels' multipletests([0.01, 0.04, 0.03, 0.005], method="holm"), and R's p.adjust
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0] and holm([]) == []


def test_the_smallest_difference_that_so_many_pairs_show() -> None:
    pytest.importorskip("scipy")
    # statsmodels' TTestPower().solve_power(nobs=pairs, alpha=0.05 / comparisons, power=0.8), in standard deviations
    for pairs, comparisons, expected in (
        (3, 1, 3.264044), (5, 1, 1.681997), (5, 9, 3.069702), (10, 3, 1.223470),
    ):  # fmt: skip
        variant = [float(seed % 3) for seed in range(pairs)]
        first, *_ = differences([0.0] * pairs, *[variant] * comparisons, alike=False)
        assert first.std and first.detectable == pytest.approx(expected * first.std, rel=1e-5)
