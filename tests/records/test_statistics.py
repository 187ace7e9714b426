"""Differences over seeds: SciPy's own numbers, published examples, what one seed can't say."""

from __future__ import annotations

import sys

import pytest

from rskip.records.statistics import Difference, detectable, holm, paired_difference
from rskip.records.tables import summarise


def test_the_difference_of_pairs_of_seeds_with_interval_and_p() -> None:
    pytest.importorskip("scipy")
    # Student 1908: additional hours of sleep with two drugs, t = 4.0621, p = 0.002833, interval 0.70 to 2.46
    first = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
    second = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
    found = paired_difference(dict(enumerate(second)), dict(enumerate(first)) | {99: 7.0})
    assert found is not None and found.seeds == tuple(range(10)) and found.interval is not None
    assert found.mean == pytest.approx(1.58) and found.p == pytest.approx(0.002833, abs=5e-7)
    assert found.interval == pytest.approx((0.7001142, 2.4598858), abs=5e-8)


def test_one_pair_is_no_comparison_and_equal_differences_are_nothing_to_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.stats", None)
    assert paired_difference({1: 38.0, 2: 1.0}, {1: 37.5, 3: 1.0}) == Difference(seeds=(1,), mean=0.5)
    same = paired_difference({1: 0.3, 2: 0.4}, {1: 0.2, 2: 0.3})
    assert same is not None and (same.std, same.interval, same.p) == (0.0, None, None)
    assert paired_difference({1: 0.3}, {2: 0.3}) is None
    with pytest.raises(ValueError, match=r"needs scipy: install the extra report with pip"):
        paired_difference({1: 0.3, 2: 0.5}, {1: 0.2, 2: 0.3})


def test_holm_multiplies_by_the_comparisons_that_are_left() -> None:
    # statsmodels' multipletests([0.01, 0.04, 0.03, 0.005], method="holm"), and R's p.adjust
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0] and holm([]) == []


def test_the_smallest_difference_that_so_many_pairs_show() -> None:
    pytest.importorskip("scipy")
    # statsmodels' TTestPower().solve_power(nobs=pairs, alpha=0.05 / comparisons, power=0.8), in standard deviations
    for pairs, comparisons, expected in (
        (2, 1, 11.54989), (3, 1, 3.264044), (5, 1, 1.681997), (5, 9, 3.069702), (10, 3, 1.223470),
    ):  # fmt: skip
        assert detectable(1.0, pairs=pairs, comparisons=comparisons) == pytest.approx(expected, rel=1e-5)
    assert detectable(0.5, pairs=5) == pytest.approx(0.8409985, rel=1e-5)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf")])
def test_what_is_no_number_is_refused_in_one_line(wrong: float) -> None:
    for call in (
        lambda: paired_difference({1: wrong}, {1: 1.0}),
        lambda: paired_difference({1: 1.0, 2: 2.0}, {1: 1.0, 2: wrong}),
        lambda: paired_difference({1: wrong, 2: 1.0}, {1: wrong, 2: 2.0}),
        lambda: holm([0.1, wrong]),
        lambda: detectable(wrong, pairs=3),
        lambda: detectable(1.0, pairs=1),
        lambda: summarise([1.0, wrong]),
        lambda: summarise([]),
    ):
        with pytest.raises(ValueError, match="expected ") as error:
            call()
        assert "\n" not in str(error.value)
    assert paired_difference({1: wrong, 2: 1.0}, {2: 0.5}) == Difference(seeds=(2,), mean=0.5)
