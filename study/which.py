"""What all comparisons with a baseline say of each connection: the tables and the figure of docs/which_connection.md.

`which` has one row per connection that several models tested, `which.lower` those that are lower in one of them, and
`which.details` each of these tests.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from rskip.analysis.measurement import Measurement, Value
from rskip.experiments.results import Results
from rskip.records.tables import Table
from study.baseline import COMPARISONS, BaselineComparison, Family, Welch, read_comparison

NAME, LOWER, DETAILS = NAMES = ("which", "which.lower", "which.details")
SEVERAL = 2  # models that tested a connection that is shown
# each model's comparisons: of a connection that several of them tested, the first counts
MODELS = (
    ("dual", "rates", "own_rates", "l4"), ("deep_siamese", "deep_all"),
    ("vit_long", "vit12"), ("vit24",),
    ("translation",), ("translation18",),
)  # fmt: skip
_MEMORY = "memory ×"  # not in README's table, which is wide
_LOWER, _HIGHER, _SLOWER = "lower", "higher", "worse at equal time"


def _two_digits(value: float) -> str:
    return f"{value:#.2g}".removesuffix(".")


class Outcome(NamedTuple):
    """One connection in one model, at equal updates and, if it takes longer and this was tested, at equal time."""

    model: str
    family: Family
    test: Welch
    verdict: str
    same_time: Welch | None = None

    @property
    def found(self) -> str:
        """The detected difference at equal updates, in one word."""
        if not self.test.detected:
            return "not detected"
        return _LOWER if self.test.mean < 0 else _HIGHER

    @property
    def is_better(self) -> bool:
        """Whether it is lower at equal updates and at equal time."""
        return self.verdict == "win"

    @property
    def later(self) -> str:
        """The test in the same time, with the seeds of both sides if another comparison made it."""
        if (test := self.same_time) is None:
            return ""
        return str(test) if test.seeds == self.test.seeds else f"{test} ({test.seeds[1]} and {test.seeds[0]} seeds)"

    @property
    def mark(self) -> str:
        """What the figure says of it."""
        if self.found != _LOWER:
            return self.found
        return "lower in the same time too" if self.is_better else "lower per update"

    @property
    def said(self) -> str:
        """The result in a few words, with the size of a detected difference, or of one that would be."""
        size, later = f"{_two_digits(abs(self.test.mean))} {self.found}", self.same_time
        if self.is_better:
            return f"**{size}**" + (f" ({_two_digits(abs(later.mean))} in the same time)" if later else "")
        per_update = f"{size} per update" + ("" if later else " (same time not tested)")
        unknown = f"not detected (MDE {_two_digits(self.test.detectable)})"
        return {"better per update": per_update, "worse": size, "not detected": unknown}.get(self.verdict, self.verdict)


@cache  # for three tables and the figure
def by_connection(root: Path, results: Results) -> dict[str, list[Outcome]]:
    """The tests of each connection that SEVERAL models tested, in the order of the models and of their losses."""
    found: dict[str, list[Outcome]] = {}
    for names in MODELS:
        known: dict[str, Outcome] = {}
        for each in _tests(*(read_comparison(root, results, name) for name in names)):
            first = known.setdefault(each.family.connection, each)
            if first.same_time is None and each.same_time is not None:  # the first has not tested equal time
                verdict = _SLOWER if first.verdict == "not detected" and each.verdict == _SLOWER else first.verdict
                known[each.family.connection] = first._replace(verdict=verdict, same_time=each.same_time)
        for connection, each in known.items():
            found.setdefault(connection, []).append(each)
    return {connection: tests for connection, tests in found.items() if len(tests) >= SEVERAL}


def _tests(*comparisons: BaselineComparison) -> Iterator[Outcome]:
    for each in comparisons:
        tests, times, verdicts = each.tests(equal_time=False), each.tests(equal_time=True), each.verdicts()
        for family in each.others:
            if (connection := family.connection) in tests:
                same_time = None if each.same_time(family) is each.baseline else times.get(connection)
                yield Outcome(each.rules.model, family, tests[connection], verdicts[connection], same_time)


def _cost(values: Sequence[float | None]) -> str:
    """The smallest to the largest of the known values; nothing without one."""
    known = sorted(each for each in values if each is not None)
    return " to ".join(dict.fromkeys(f"{each:.2f}" for each in (*known[:1], *known[-1:])))


def _lower_in_one(tests: Sequence[Outcome]) -> bool:
    return any(each.found == _LOWER for each in tests)


def table(name: str, root: Path, results: Results) -> str:
    """One of the tables, in Markdown."""
    found, models = by_connection(root, results), [COMPARISONS[names[0]].model for names in MODELS]
    if name == DETAILS:
        headings = ["model", "connection", "time ×", "seeds", "as many updates", "MDE", "in the same time", "result"]
        rows = [
            [each.model, f"`{each.family.connection}`", _cost([each.family.update_time]), str(len(each.family.losses)),
             str(each.test), _two_digits(each.test.detectable), each.later, each.said]
            for model in models for tests in found.values() for each in tests if each.model == model
        ]  # fmt: skip
        return Table(name=name, title=name, headings=headings, rows=rows, notes=[]).render("markdown")
    rows = []
    for connection, tests in found.items():
        if name == NAME or _lower_in_one(tests):
            said, families = {each.model: each.said for each in tests}, [each.family for each in tests]
            time, memory = _cost([each.update_time for each in families]), _cost([each.memory for each in families])
            rows.append([f"`{connection}`", time, memory, *(said.get(model, "") for model in models)])
    headings = ["connection", "time ×", _MEMORY, *models]
    unshown = () if name == NAME else (_MEMORY,)
    shown = [at for at, each in enumerate(headings) if each not in unshown and any(row[at] for row in rows)]
    return Table(
        name=name, title=name, headings=[headings[at] for at in shown],
        rows=[[row[at] for at in shown] for row in rows], notes=[],
    ).render("markdown")  # fmt: skip


def differences(root: Path, results: Results) -> Measurement:
    """One row per test of a connection that is lower in one of them: difference at equal updates, and its interval."""
    shown = [(name, tests) for name, tests in by_connection(root, results).items() if _lower_in_one(tests)]
    rows: list[dict[str, Value]] = [
        {
            "model": connection, "quantity": f"{each.model}, {each.family.rules.unit}",
            "found": each.mark, "value": each.test.mean,
            "lower": each.test.interval[0], "upper": each.test.interval[1],
        }
        for connection, tests in shown for each in tests
    ]  # fmt: skip
    return Measurement(analysis="differences", conditions={}, rows=rows)
