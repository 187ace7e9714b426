"""Comparisons with a baseline: rates, tests and verdicts as the recipes announced them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from rskip.analysis.figures import View
from rskip.experiments.recipe import all_recipes
from rskip.experiments.results import read_results
from rskip.records import Record
from rskip.records.statistics import holm
from study.baseline import COMPARISONS, SAME_TIME, BaselineComparison, Welch, mean_interval, read_comparison, welch
from study.costs import Cost, Costs, Model
from study.grid_drawing import chart_of, draw_chart

NOISE = (-0.002, -0.001, 0.0, 0.001, 0.002)


def cost(connection: str, time: float) -> Cost:
    counts = dict.fromkeys(("calls_forward", "calls_backward"), 1)
    sizes = dict.fromkeys(("kept_megabytes", "megabytes_forward", "megabytes_backward"), 1.0)
    return Cost(model="language_modeling_4", connection=connection, update_ratio=time, **counts, **sizes)


@pytest.fixture
def compared(root: Path, make_record: Callable[..., Record]) -> Callable[..., BaselineComparison]:
    """The comparison with 4 layers of given losses: (variant, rate) -> (first half, second half, time per update)."""
    everything = all_recipes(root)

    def build(
        losses: dict[tuple[str, str], tuple[float, float, float] | None],
        seeds: int = 5,
        name: str = "l4",
    ) -> BaselineComparison:
        rules = COMPARISONS[name]
        stem = rules.runs[0].partition("/")[0]
        recipes = [each for each in everything if each.path.stem == stem]
        connections = {each.variant: each.config["train"]["connection"] for each in recipes}
        records, costs = {}, {"prenorm+ln": cost("prenorm+ln", 1.0)}
        for (name, rate), given in losses.items():
            variant = f"l4_{name}_lr{rate}"
            connection = connections[variant]
            if given is not None:
                costs[connection] = cost(connection, given[2])
            records[f"{stem}/{variant}"] = [
                make_record(
                    recipe=stem, variant=variant, kind="language_modeling", seed=seed, overrides={},
                    metrics={} if given is None else {
                        "loss": 2.0, "loss_first_half": given[0] + noise, "loss_second_half": given[1] + noise
                    },
                    signatures={}, curve=[], machine={"cpu": "one", "threads": 1},
                    **({"checkpoint_sha256": None} if given is None else {}),
                )
                for seed, noise in zip(range(1, seeds + 1), NOISE, strict=False)
            ]  # fmt: skip
        models = {"language_modeling_4": Model(description="a language model", baseline="prenorm+ln")}
        return BaselineComparison(rules, recipes, records, Costs(models, {"language_modeling_4": costs}))

    return build


def test_the_rate_is_chosen_on_the_first_half_and_reported_on_the_second(compared):
    made = compared({("prenorm_ln", "1e-3"): (1.9, 1.8, 1.0), ("prenorm_ln", "3e-3"): (1.95, 1.7, 1.0)})
    assert made.baseline.rate == "0.001"
    assert list(made.baseline.losses.values()) == pytest.approx([1.8 + noise for noise in NOISE])


def test_the_rate_is_chosen_over_the_seeds_that_ran_at_both(compared):
    made = compared({("lns", "1e-3"): (1.9, 1.8, 1.0), ("lns", "3e-3"): (1.9005, 1.7, 1.0)})
    family = made.families["lns"]
    del family.rates["0.003"][1:]  # its seed 1 is 1.9005 - 0.002; the other rate's is 1.898, and its mean 1.9
    assert family.rate == "0.001"
    assert len(family.losses) == 5
    family.rates["0.003"].clear()
    assert family.rate == "0.001"


def test_verdicts(compared):
    made = compared(
        {
            ("prenorm_ln", "1e-3"): (1.9, 1.9, 1.0),
            ("prenorm_ln_2500", "1e-3"): (1.8, 1.8, 1.0),
            ("prenorm_ln_3000", "1e-3"): (1.7, 1.7, 1.0),
            ("lns", "1e-3"): (1.85, 1.85, 1.01),  # as fast, lower
            ("hyper", "1e-3"): (1.75, 1.75, 1.43),  # lower per update, but 1.43 times the time
            ("mhc", "1e-3"): (1.6, 1.6, 1.43),  # lower than 3,000 updates too
            ("attnres", "1e-3"): (1.5, 1.5, 10.0),  # too slow for any length
            ("siamese", "1e-3"): (1.9, 1.9001, 1.0),
            ("frac", "1e-3"): (1.9, 1.9001, 1.43),  # as good per update
            ("keel", "1e-3"): (1.9, 1.894, 1.0),  # detected, but smaller than the margin
            ("highway", "1e-3"): (2.5, 2.5, 1.0),
            ("rezero", "1e-3"): None,
            ("rezero", "3e-3"): None,
            ("sandwich", "1e-3"): None,
            ("sandwich", "3e-3"): (1.85, 1.85, 1.0),
        }
    )
    table = made.table("l4")
    assert {row[0]: row[-1] for row in table.rows} == {
        "prenorm+ln": "", "prenorm+ln, 2,500 updates": "", "prenorm+ln, 3,000 updates": "", "lns": "win",
        "hyper": "better per update", "mhc": "win",
        "attnres": "better per update", "siamese": "not detected", "keel": "lower by less than 0.01",
        "frac": "worse at equal time", "highway": "worse", "rezero": "diverged at every rate", "sandwich": "win",
    }  # fmt: skip
    assert made.same_time(made.families["hyper"]) is made.families["prenorm_ln_3000"]
    assert made.same_time(made.families["lns"]) is made.baseline
    assert made.same_time(made.families["attnres"]) is None
    # as fast as the baseline: both comparisons are the same, so only their corrections can differ
    apart = [Welch(mean=0.02, interval=(0.01, 0.03), p=p, detectable=0.02) for p in (0.061, 0.032)]
    assert made._verdict(made.families["siamese"], *apart) == "not detected"
    assert made._verdict(made.families["frac"], *apart) == "worse at equal time"


def test_two_seeds_are_no_test_and_no_records_no_rows(compared, tmp_path):
    made = compared({("prenorm_ln", "1e-3"): (1.9, 1.9, 1.0), ("lns", "1e-3"): (1.8, 1.8, 1.0)}, seeds=2)
    assert [row[0] for row in made.table("l4").rows] == ["prenorm+ln"]
    assert made.table("l4").notes[-1] == "Too few seeds for a ranking: lns 1.7985."
    assert "prenorm+ln, 2,500 updates; " in made.table("l4").notes[1], "what is missing is named"
    assert compared({}).table("l4").rows == [] and not compared({}).times().rows
    pytest.importorskip("matplotlib")
    draw_chart(chart_of(made.times(), View()), tmp_path / "times.svg")
    assert (tmp_path / "times.svg").stat().st_size > 5000


def test_the_best_connections_at_more_rates(compared):
    made = compared(
        {
            ("prenorm_ln", "3e-3"): (1.9, 1.8, 1.0),
            ("prenorm_ln", "6e-3"): (1.8, 1.9, 1.0),  # better on the first half, so this is the baseline's loss
            ("residual_dual", "3e-3"): (1.8, 1.85, 1.0),
            ("residual_dual", "6e-3"): (1.7, 1.75, 1.0),
            ("residual_dual", "12e-3"): None,
            ("periln", "3e-3"): (1.8, 1.9001, 1.0),
            ("siamese", "3e-3"): (1.8, 2.0, 1.0),
        },
        name="rates",
    )
    table = made.table("l4")
    assert [[row[0], *row[1:5], row[-1]] for row in table.rows] == [
        ["prenorm+ln", "1.8000", "1.9000", "-", "5", ""],
        ["residual_dual", "1.8500", "1.7500", "diverged", "5", "win"],
        ["periln", "1.9001", "-", "-", "5", "not detected"],
        ["siamese", "2.0000", "-", "-", "5", "worse"],
    ]
    assert sorted(at for at in table.bold if at[0] < 2) == [(0, 2), (1, 2), (1, 6)]
    assert table.rows[1][5].startswith("-0.1500 [")


@pytest.mark.parametrize("name", [name for name, rules in COMPARISONS.items() if rules.equal_time])
def test_the_time_of_every_compared_connection_was_measured(root, name):
    made = read_comparison(root, read_results(root), name)
    unmeasured = [family.connection for family in made.families.values() if made.time(family) is None]
    assert unmeasured == [], "run benchmarks/connection_cost.py --models language_modeling_4 --only CONNECTION"


def test_times_are_those_of_the_depth(root):
    four, deep = (read_comparison(root, read_results(root), name) for name in ("l4", "deep_all"))
    assert four.time(four.families["prenorm_ln_3000"]) == 1.5
    assert deep.time(deep.families["hyper"]) != four.time(four.families["hyper"])  # never the other depth's
    again = read_comparison(root, read_results(root), "rates")
    slower = [family.connection for family in again.families.values() if again.time(family) > SAME_TIME]
    assert set(slower) <= {"siamese"}, "docs/lm_field.md says which is slower"


def test_welchs_test_equals_scipys():
    first, second, third = [1.0, 1.1, 0.9, 1.05], [1.3, 1.2, 1.6], [1.0, 1.2, 0.8]
    found = welch([(first, second), (first, third)])
    plain = [stats.ttest_ind(each, first, equal_var=False) for each in (second, third)]
    assert [each.p for each in found] == pytest.approx(holm([float(each.pvalue) for each in plain]))
    assert found[0].interval == pytest.approx(tuple(plain[0].confidence_interval(0.95)))
    assert mean_interval([1.0, 2.0, 3.0]) == pytest.approx((2.0, 2 - 4.302653 / 3**0.5, 2 + 4.302653 / 3**0.5))
    assert mean_interval([1.5]) == (1.5, None, None)


def test_the_detectable_difference_is_detected_four_times_in_five():
    alike = [-1.0, -1.0, 1.0, 1.0]
    scale = np.std(alike, ddof=1)
    [found] = welch([(alike, [value + 0.1 for value in alike])])
    first, second = np.random.default_rng(1).normal(scale=scale, size=(2, 4, 20_000))
    p = stats.ttest_ind(second + found.detectable, first, equal_var=False).pvalue
    assert np.mean(p < 0.05) == pytest.approx(0.8, abs=0.05)  # degrees of freedom vary
