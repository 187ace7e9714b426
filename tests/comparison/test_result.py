"""What a comparison says of its runs."""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Callable
from pathlib import Path
from statistics import fmean

import msgspec
import pytest

from rskip.comparison.result import Comparison, differences
from rskip.comparison.running import Runs
from rskip.comparison.subjects import Job
from rskip.records.statistics import compare
from tests.comparison.conftest import write

RECORDS = Path(__file__).parents[2] / "study" / "results" / "runs"
BASE = [2.0, 2.02, 1.98]


def test_differences_are_those_of_dunnetts_test(planned: Callable[..., Runs]) -> None:
    mhc, other = [1.9, 1.91, 1.92], [2.01, 1.99, 2.02]
    found = Comparison(planned({"own": (1.0, BASE), "mhc": (1.0, mhc), "hyper": (1.0, other)}))
    first, second = compare(*[dict(enumerate(each, 1)) for each in [BASE]],
                            [dict(enumerate(each, 1)) for each in (mhc, other)], [True, True])  # fmt: skip
    assert [row.updates for row in found.rows] == [None, first, second]
    assert [row.time for row in found.rows] == [None, first, second]  # their updates take as long
    said = found.verdict().splitlines()
    assert first is not None and first.interval is not None and second is not None
    low, high = sorted(map(abs, first.interval))
    assert said[0].startswith(f"`mhc` is lower by {-first.mean:.3f} [{low:.3f}, {high:.3f}]")
    assert f"no detected difference (+0.007; detectable: {second.detectable:.3f})" in said[1]


def test_a_connection_that_varies_much_more_is_compared_in_pairs(planned: Callable[..., Runs]) -> None:
    losses = {"own": (1.0, BASE), "1xskip+ln": (1.0, [2.3, 3.4, 2.4]), "residual_dual": (1.0, [1.9, 1.91, 1.92])}
    _, unstable, dual = Comparison(planned(losses)).rows
    assert unstable.updates is not None and unstable.updates.freedom == 2 and unstable.updates.p > 0.05
    assert dual.updates is not None and dual.updates.freedom == 4 and dual.updates.p < 0.05
    alone = Comparison(planned({name: losses[name] for name in ("own", "residual_dual")})).rows[1]
    assert dual.updates == alone.updates


def test_in_the_same_time_the_baseline_trains_longer(planned: Callable[..., Runs]) -> None:
    slow, slower = [1.90, 1.92, 1.91], [1.80, 1.82, 1.81]
    longer = [loss - 0.1 for loss in BASE]
    found = Comparison(planned({"own": (1.0, BASE), "mhc": (1.5, slow), "hyper": (2.0, slower)}, longer))
    assert found.plan.longest == 200
    _, mhc, hyper = found.rows
    assert mhc.time is not None and hyper.time is not None
    share = math.log(1.5) / math.log(2)
    assert mhc.time.mean == pytest.approx(fmean(slow) - (fmean(BASE) - 0.1 * share))
    assert hyper.time.mean == pytest.approx(fmean(slower) - fmean(longer))
    unfinished = Comparison(planned({"own": (1.0, BASE), "2rskip+ln": (1.2, slow)}))
    assert unfinished.rows[1].time is None and unfinished.rows[1].updates is not None


def test_a_diverged_run_has_no_loss_and_is_told(planned: Callable[..., Runs]) -> None:
    runs = planned({"own": (1.0, BASE), "mhc": (1.0, [1.9, 1.91, 1.92])})
    write(runs, Job("mhc", 0.1, 100, 2), None)
    row = Comparison(runs).rows[1]
    assert row.losses == {1: 1.9, 3: 1.92} and row.diverged == 1
    assert "1 of its runs diverged" in Comparison(runs).verdict()


def test_runs_of_one_connection_differ_as_often_as_chance_says() -> None:
    """Relabelled runs of prenorm+ln with disjoint seeds: "detected" in 5 % of 600, within the 99.9 % interval."""
    losses = {
        (file.parts[-3], int(file.stem)): json.loads(file.read_text())["metrics"]["loss"]
        for file in RECORDS.glob("*/l4_prenorm_ln_lr3e-3/*.json")
    }
    assert len({seed for _, seed in losses}) == len(losses) >= 16
    drawn, detected = random.Random(1), 0
    for _ in range(600):
        chosen = drawn.sample(list(losses.values()), 10)
        (found,) = differences(dict(enumerate(chosen[:5])), [dict(enumerate(chosen[5:]))])
        detected += found is not None and found.p is not None and found.p < 0.05
    assert 14 <= detected <= 49  # binomial, n = 600, p = 0.05


def test_the_page_stands_alone_and_its_names_are_on_it(planned: Callable[..., Runs], tmp_path: Path) -> None:
    names = ["own", "mhc", "hyper", "attnres", "2rskip+ln", "residual_dual", "1xskip+ln"]
    losses = {name: (1.0 + at / 10, [2.0 + at / 1000, 2.01, 2.02]) for at, name in enumerate(names)}
    found = Comparison(planned(losses, [1.9, 1.91, 1.92]))
    found.html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "<svg" in page and "2rskip+ln" in page and not re.search("<(link|script|img)|src=", page)
    text_type = pytest.importorskip("matplotlib.text").Text
    figure = found.figure()
    figure.savefig(tmp_path / "chart.png")  # places the names
    boxes = [text_type.get_window_extent(text) for text in figure.axes[0].texts]
    assert len(boxes) == len(names) + 1
    assert not [1 for at, box in enumerate(boxes) for other in boxes[:at] if box.overlaps(other)]
    assert all(figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1 for box in boxes)


def test_the_table_has_a_row_for_each_connection(planned: Callable[..., Runs]) -> None:
    pytest.importorskip("pandas")
    table = Comparison(planned({"own": (1.0, BASE), "mhc": (1.0, [1.9, 1.91, 1.92])})).table()
    assert list(table.index) == ["own", "mhc"] and table.loc["mhc", "difference_same_updates"] == pytest.approx(-0.09)


def test_commands_for_more_certainty_replace_the_flag(planned: Callable[..., Runs]) -> None:
    found = Comparison(planned({"own": (1.0, BASE), "mhc": (1.0, [1.99, 2.0, 1.985])}))
    needed = found.rows[1].updates
    assert needed is not None and needed.needed is not None
    assert f"rskip compare gpt2 --minutes 1 --seeds {needed.needed}" in found.verdict()
    words = ["rskip", "compare", "gpt2", "--rates", ".12345", "0.2", "--minutes", "1"]
    runs = Runs(plan=msgspec.structs.replace(found.plan, command=words, rates=[0.12345, 0.2]), output=found.runs.output)
    for job in runs.plan.pilots():
        write(runs, job, job.rate)
    verdict = Comparison(runs).verdict()
    assert "rskip compare gpt2 --minutes 1 --rates 0.0411 0.12345 0.2" in verdict
    few = Comparison(planned({"own": (1.0, BASE[:2]), "mhc": (1.0, [1.99, 2.0])})).verdict()
    assert "can't test" in few and "rskip compare gpt2 --minutes 1 --seeds 3" in few
