"""The claims of both papers: study/claims.yaml describes each and its test; the verdicts are computed.

A claim is judged by one of these:

    checks      values from committed measurements and records, each compared with a limit
    tests       tests of the suite that prove the claim; refuted_by: tests that prove the contrary
    compared    differences in a paper's table (`rskip.experiments.comparisons`) that our seeds must show
    untested    the reason why it is not tested

With the last two, checks show related results and do not affect the verdict.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import fmean, median
from typing import Any, Literal

import msgspec

from rskip.experiments.comparisons import ComparisonTable, Line, probability_text
from rskip.experiments.results import Results
from rskip.records.tables import markdown_table, markdown_text
from rskip.settings.check import convert
from rskip.settings.text import read_yaml

FILE, PAGE = Path("study", "claims.yaml"), Path("docs", "claims.md")
Verdict = Literal["agrees", "disagrees", "not detected", "untested"]


class Quantity(msgspec.Struct, frozen=True, kw_only=True):
    """A number in a committed file: a value of a run record, or one computed from a measurement's rows.

    :param file: None: each file of the claim's `seeds`.
    :param of: a record's key, with levels joined by dots, or a column of a measurement or of a record's `curve`.
    :param rows: where the rows are; `curve` for the learning curve of a run record.
    :param where: selects rows by their values.
    :param take: combines several values: trend is Kendall's τ over the rows' order, share_above the share above
        `limit`, and rise the largest increase above an earlier value.
    """

    of: str
    file: str | None = None
    rows: Literal["rows", "curve"] = "rows"
    where: Mapping[str, str | int] = {}
    take: Literal["only", "first", "last", "min", "max", "median", "trend", "rise", "share_above"] = "only"
    limit: float = 0.0


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """A value and its limits.

    :param says: the text that shows the value, with {} for the value, such as "{:.3g}".
    :param over: the quantity to divide the value by. Missing keys are taken from `value`.
    :param below_that: the value must also be below the same quantity with these keys, such as `where` of the baseline.
    :param judges: false if the value is only shown, in addition to values with limits.
    """

    says: str
    value: Quantity
    over: Mapping[str, Any] | None = None
    above: float | None = None
    below: float | None = None
    below_that: Mapping[str, Any] | None = None
    judges: bool = True


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """Variants of a table whose scores should be lower or higher than their baselines'."""

    table: str
    variants: tuple[str, ...]
    are: Literal["lower", "higher"]


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A sentence that can be tested.

    :param where: section, table or figure.
    :param claim: the sentence, shortened.
    :param paper_says: the paper's scores.
    :param at: the setting that was measured instead of the paper's; "": the paper's own setting.
    :param seeds: measurements of seed 1, 2 and so on. Each check, which then names no file, is made with each of them.
    :param measures: what the checks of seeds show, in words.
    :param command: the command that makes its measurements, for readers of the file; a table or tests need none.
    :param note: a remark about the verdict.
    """

    where: str
    claim: str
    paper_says: str = ""
    at: str = ""
    checks: tuple[Check, ...] = ()
    seeds: tuple[str, ...] = ()
    measures: str = ""
    tests: tuple[str, ...] = ()
    refuted_by: tuple[str, ...] = ()
    compared: tuple[Compared, ...] = ()
    untested: str = ""
    command: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        if not (self.untested or self.compared):
            kinds = [each for each in (self.checks, self.tests, self.refuted_by) if each]
            assert len(kinds) == 1, f"{self.claim}: has none or several of checks, tests, refuted_by"
            assert not self.checks or any(each.judges for each in self.checks), f"{self.claim}: no check judges"


class Paper(msgspec.Struct, frozen=True, kw_only=True):
    """A paper's claims, in the order of the paper."""

    name: str
    title: str
    claims: tuple[Claim, ...]


class Ledger(msgspec.Struct, frozen=True, kw_only=True):
    """study/claims.yaml.

    :param costs: the cost of one run, by the name of the recipe file, or of the table if its variants cost less.
    """

    costs: Mapping[str, str]
    papers: tuple[Paper, ...]


_BEFORE_TRAINING = "at initialisation"  # the first words of such a setting
_BASES = (
    "proved exactly",
    "in the paper's setting",
    "in another setting",
    "before training",
)


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A claim with its verdict.

    :param figure: the evidence.
    :param why: what is missing for a verdict, and its cost.
    """

    claim: Claim
    verdict: Verdict
    figure: str = ""
    why: str = ""

    @property
    def basis(self) -> str:
        """One of `_BASES`."""
        if self.claim.tests or self.claim.refuted_by:
            return _BASES[0]
        return _BASES[3 if self.claim.at.startswith(_BEFORE_TRAINING) else 2 if self.claim.at else 1]

    @property
    def found(self) -> str:
        """The evidence, the note, the reason for a missing verdict, and the tests that prove it."""
        proof = " ".join(self.claim.tests or self.claim.refuted_by)
        return _sentences(self.figure, self.claim.note, self.why) + (f" (`pytest {proof}`)" if proof else "")


def _sentences(*parts: str) -> str:
    first, *others = (part.rstrip(".") for part in parts if part) if any(parts) else ("",)
    return ". ".join((first, *(part[0].upper() + part[1:] for part in others)))


def judge_claims(root: Path, tables: Results) -> list[tuple[Paper, list[Judged]]]:
    """The claims of each paper in study/claims.yaml, with verdicts; empty without the file."""
    if not (root / FILE).is_file():
        return []
    ledger = convert(read_yaml(root / FILE), Ledger, source=str(FILE))
    return [
        (paper, [_judge(claim, root, tables, ledger.costs) for claim in paper.claims]) for paper in ledger.papers
    ]


def claims_page(judged: Sequence[tuple[Paper, Sequence[Judged]]]) -> str:
    """The content of docs/claims.md."""
    parts = [_HEADER]
    for paper, claims in judged:
        of_paper = f"{markdown_text(paper.title)}: {count_verdicts(claims)}."
        parts += [f"## {markdown_text(paper.name)}", of_paper]
        untested = [each for each in claims if each.verdict == "untested"]
        tested = [each for each in claims if each.verdict != "untested"]
        if tested:
            rows = [
                [
                    each.claim.where,
                    "the same" if before is not None and _claim(each) == _claim(before) else _claim(each),
                    f"**{each.verdict}**" + (f" {each.claim.at}" if each.claim.at else ""),
                    each.found,
                ]
                for before, each in zip([None, *tested], tested, strict=False)
            ]
            parts.append(markdown_table(["where", "claim", "verdict", "evidence"], rows))
        if untested:
            rows = [[each.claim.where, _claim(each), _known(each)] for each in untested]
            parts.append(markdown_table(["where", "claim: **untested**", "what we know, or a test needs"], rows))
    return "\n\n".join(parts) + "\n"


def _claim(judged: Judged) -> str:
    return judged.claim.claim + (f" ({judged.claim.paper_says})" if judged.claim.paper_says else "")


def _known(judged: Judged) -> str:
    """What is known of an untested claim, and what a test needs if a table's missing runs don't say it."""
    in_table = judged.claim.compared and judged.why.startswith("no records")
    why = "" if in_table else re.sub("^no records(; )?", "", judged.why)
    known = _sentences(judged.figure, judged.claim.note, why)
    return ": ".join(part for part in (judged.claim.at, known) if part)


def count_verdicts(claims: Sequence[Judged]) -> str:
    """The counts as text, such as "3 agree (1 proved exactly, 2 in another setting), 20 are untested"."""
    counts = Counter(each.verdict for each in claims)
    bases = Counter((str(each.verdict), each.basis) for each in claims if each.verdict != "untested")
    words: dict[Verdict, tuple[str, str]] = {
        "agrees": ("agrees", "agree"),
        "disagrees": ("disagrees", "disagree"),
        "not detected": ("is not detected", "are not detected"),
        "untested": ("is untested", "are untested"),
    }
    parts = []
    for verdict in words:
        of = [f"{count} {basis}" for basis in _BASES if (count := bases[verdict, basis])]
        text = f"{counts[verdict]} {words[verdict][counts[verdict] != 1]}"
        if counts[verdict]:
            parts.append(f"{text} ({', '.join(of)})" if of else text)
    return ", ".join(parts)


_HEADER = """\
# The papers' claims

Every testable claim of both papers, with a verdict. About half of the claims are untested, and most verdicts are about
smaller settings than the papers'; the verdict then names ours ("to the end": a full training of size tiny; "after 500
iterations": ResNet-110, seeds 1 to 3). [results.md](results.md) discusses the results, and
[papers.md](papers.md#what-a-run-costs) has the hours of runs.

A verdict is **agrees**, **disagrees**, **not detected** (three seeds or more, and no difference detected) or
**untested** (no record, or too few seeds for a test). It is computed in one of three ways:

- Measured values are compared with a limit in `study/claims.yaml`. We chose the limits ourselves, some of them
  after the measurement.
- A test in the test suite proves the claim or its opposite.
- Our seeds show a difference in a table ([how to read it](recipes.md#read-a-table)).

Both papers show gradients of trained models, so a verdict at initialisation does not contradict them. It is from one
seed with "raw" shortcuts; [gradients.md](gradients.md#at-initialisation) has five seeds, and "activated" ones.

A claim that was tested in several settings has several lines, which the counts count. `study/claims.yaml`
also has the command of each claim.

`make study` writes this page from `study/claims.yaml`, measurements and run records; do not edit it by hand."""


def _judge(claim: Claim, root: Path, tables: Results, costs: Mapping[str, str]) -> Judged:
    seeds = [claim.checks] if not claim.seeds else [_of_file(claim.checks, file) for file in claim.seeds]
    figures = [[(each, _figure(each, root)) for each in checks] for checks in seeds]
    said = [[each.says.format(value) for each, value in of_seed] for of_seed in figures]
    figure = "; ".join(said[0])
    if claim.seeds:
        of_seeds = [f"seed {number}: {', '.join(texts)}" for number, texts in enumerate(said, start=1)]
        figure = "; ".join([claim.measures, *of_seeds])
    if claim.untested:
        return Judged(claim=claim, verdict="untested", figure=figure, why=claim.untested)
    if claim.compared:
        return _judge_compared(claim, tables, costs, known=figure)
    if claim.checks:
        agrees = all(_holds(each, value, root) for of_seed in figures for each, value in of_seed if each.judges)
        return Judged(claim=claim, verdict="agrees" if agrees else "disagrees", figure=figure)
    tests = claim.tests or claim.refuted_by
    for test in tests:
        file, _, name = test.partition("::")
        assert re.search(rf"^def {name}\(", (root / file).read_text(encoding="utf-8"), re.MULTILINE), test
    return Judged(claim=claim, verdict="agrees" if claim.tests else "disagrees", figure="exactly")


def _judge_compared(claim: Claim, tables: Results, costs: Mapping[str, str], *, known: str) -> Judged:
    figures = [known] if known else []
    missing: list[Line] = []
    found: set[Verdict] = set()
    for compared in claim.compared:
        table = tables.comparison(compared.table)
        for variant in compared.variants:
            line = _line(table, variant)
            if line.difference is None:
                missing += [each for each in (line, line.baseline) if each is not None and not each.records]
                found.add("untested")
                continue
            figures.append(f"{variant}: {line.difference.mean:+.2f} {line.measure}")
            if line.difference.interval is not None and line.difference.p is not None:
                low, high = line.difference.interval
                p = probability_text(line.difference.p)
                p_text = f"p {p}" if p.startswith("<") else f"p = {p}"
                figures[-1] += f" [{low:+.2f}, {high:+.2f}], {p_text}, n = {len(line.values)}"
            if line.shown:
                found.add("agrees" if (line.difference.mean < 0) == (compared.are == "lower") else "disagrees")
            elif line.difference.detectable is not None:
                found.add("not detected")
                figures[-1] += f", MDE {line.difference.detectable:.2f}"
            else:
                found.add("untested")
                figures[-1] += ", too few seeds for a test"
    order: tuple[Verdict, ...] = ("disagrees", "untested", "not detected", "agrees")
    verdict = next(each for each in order if each in found)
    why = ""
    if verdict == "untested":
        names = dict.fromkeys(line.recipe.path.stem for line in missing)
        parts = ["no records" if missing else "more seeds are needed"]
        of_table = costs.get(claim.compared[0].table)
        runs = {name: of_table or costs[name] for name in names if name in costs}
        why = "; ".join(parts + [f"a run of `{name}`: {cost}" for name, cost in runs.items()])
    return Judged(claim=claim, verdict=verdict, figure="; ".join(figures), why=why)


def _line(table: ComparisonTable, variant: str) -> Line:
    """The line with the variant's first score."""
    return next(line for line in table.lines if line.recipe.address == variant)


def _figure(each: Check, root: Path) -> float:
    value = _value(each.value, root)
    return value if each.over is None else value / _value(_like(each.value, each.over), root)


def _like(quantity: Quantity, changes: Mapping[str, Any]) -> Quantity:
    return convert({**msgspec.to_builtins(quantity), **changes}, Quantity)


def _of_file(checks: Sequence[Check], file: str) -> list[Check]:
    return [msgspec.structs.replace(each, value=msgspec.structs.replace(each.value, file=file)) for each in checks]


def _holds(each: Check, value: float, root: Path) -> bool:
    assert (each.above, each.below, each.below_that) != (None, None, None), f"{each.says}: no limit to judge by"
    below = [] if each.below is None else [each.below]
    if each.below_that is not None:
        below.append(_figure(msgspec.structs.replace(each, value=_like(each.value, each.below_that)), root))
    return (each.above is None or value > each.above) and all(value < limit for limit in below)


def _value(quantity: Quantity, root: Path) -> float:
    assert quantity.file is not None
    found: Any = json.loads((root / quantity.file).read_bytes())
    if quantity.rows not in found:
        for key in quantity.of.split("."):
            found = found[key]
        return float(found)
    where = quantity.where.items()
    rows = [row for row in found[quantity.rows] if all(row.get(key) == value for key, value in where)]
    values = [row[quantity.of] for row in rows if row.get(quantity.of) is not None]
    assert len(values) == 1 or (values and quantity.take != "only"), quantity
    return float(_TAKES[quantity.take](values) if quantity.take != "share_above" else _share(values, quantity.limit))


def _share(values: Sequence[float], limit: float) -> float:
    return fmean(value > limit for value in values)


def _trend(values: Sequence[float]) -> float:
    return fmean((b > a) - (b < a) for a, b in combinations(values, 2))


def _rise(values: Sequence[float]) -> float:
    return max(value - min(values[: at + 1]) for at, value in enumerate(values))


_TAKES: Mapping[str, Any] = {
    "only": lambda values: values[0],
    "first": lambda values: values[0],
    "last": lambda values: values[-1],
    "min": min,
    "max": max,
    "median": median,
    "trend": _trend,
    "rise": _rise,
}
