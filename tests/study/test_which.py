"""What several comparisons say of a connection, in one row."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rskip.experiments.results import read_results
from study.baseline import COMPARISONS, Family, Welch
from study.which import DETAILS, LOWER, MODELS, NAME, SEVERAL, Outcome, by_connection, differences, table


@pytest.mark.parametrize(
    "mean, p, verdict, said",
    [
        (-0.056, 0.004, "win", "**0.056 lower**"),
        (-11.06, 0.004, "win", "**11 lower**"),
        (-0.0387, 0.016, "better per update", "0.039 lower per update (same time not tested)"),
        (0.12, 0.008, "worse", "0.12 higher"),
        (0.012, 0.4, "worse at equal time", "worse at equal time"),
        (0.002, 0.9, "not detected", "not detected (MDE 0.020)"),
    ],
)
def test_a_detected_difference_has_its_size(mean, p, verdict, said):
    family = Family(rules=COMPARISONS["l4"], connection="mhc", length=1, unit="updates", update_time=1.0, memory=1.0)
    test = Welch(mean=mean, interval=(mean - 0.01, mean + 0.01), p=p, detectable=0.02)
    outcome = Outcome("a model", family, test, verdict)
    assert outcome.said == said
    if outcome.is_better:
        assert outcome._replace(same_time=replace(test, mean=-0.03)).said == f"{said} (0.030 in the same time)"


def test_the_project_shows_connections_that_several_models_tested(root):
    results = read_results(root)
    found = by_connection(root, results)
    assert all(len(tests) >= SEVERAL for tests in found.values())
    assert len({each.model for tests in found.values() for each in tests}) <= len(MODELS)
    lines, lower, details = (table(name, root, results).splitlines() for name in (NAME, LOWER, DETAILS))
    assert [line.split("`")[1] for line in lines[2:]] == list(found)
    costs = {row[1]: row[2:4] for row in ([cell.strip() for cell in line.split("|")] for line in lines[2:])}
    for connection, tests in found.items():
        measured = [(each.family.update_time, each.family.memory) for each in tests]
        ends = [f"{end(each):.2f}" for each in zip(*measured, strict=True) for end in (min, max)]
        assert [end for each in costs[f"`{connection}`"] for end in (each.split(" to ") * 2)[:2]] == ends
    assert len(details) - 2 == sum(map(len, found.values()))
    drawn = list(dict.fromkeys(row["model"] for row in differences(root, results).rows))
    assert drawn == [line.split("`")[1] for line in lower[2:]] and len(drawn) < len(found)
    # its test of three rates has no longer training of prenorm+ln, that of 40 connections has
    assert found["mhc"][0].verdict == "worse at equal time" and len(found["mhc"][0].family.losses) == 3
