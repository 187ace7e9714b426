"""Tables that compare variants: the papers' tables, whose scores recipes hold in `paper`, and tables of one recipe.

`rskip-table-1` has all scores with `table: rSkip Table 1` in a recipe. `flickr8k` has the variants of
recipes/flickr8k.yaml. Each line is a metric of a variant: our mean over seeds, the paper's score, and the difference
from the variant's baseline, if it has one, over the seeds (`statistics.compare`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from rskip.experiments.recipe import PaperScore, Recipe, written_path
from rskip.records import Record
from rskip.records.statistics import CONFIDENCE, MOST_SEEDS, PAIRS, POWER, Difference, compare
from rskip.records.tables import Summary, Table, summarise
from rskip.settings.user_dir import suggested_command
from rskip.tasks.run import flat_config

SEEDS = (1, 2, 3)
_CONNECTION = ("train.arch", "train.connection")  # what variants are expected to differ in
_PRECISION = ("train.bf16", "train.fp16", "train.precision")  # what was asked for
_NO_SCORER = "The papers name no scorer for some of their scores; ours is the main metric of `rskip report RECIPE`."
COMPARED = ("difference", "p", "MDE")  # headings
_DECIMALS = 4
LEGEND = (
    "Scores: mean ± sample standard deviation (seeds). Differences: a variant's score minus its baseline's.",
    f"In brackets: {CONFIDENCE:.0%} intervals. Without a number of pairs: Dunnett's test with the pooled standard "
    f"deviation; its intervals hold simultaneously. With {PAIRS} pairs or more, of the same seed: paired t-test, where "
    "other settings or the standard deviations differ (Bartlett's test); p is corrected for the number of comparisons "
    f"(Holm), intervals are not. Bold: detected, p below {1 - CONFIDENCE:.2f}. MDE: minimum detectable effect, which "
    f"is detected with probability {POWER} at the corrected level.",
)


@dataclass(frozen=True, kw_only=True)
class Line:
    """One metric of a variant.

    :param metric: the metric's name in run records; `measure`: in the table.
    :param paper: the papers' scores for it in this table.
    :param missing: seeds without a record, of those asked for.
    """

    recipe: Recipe
    metric: str
    measure: str
    paper: tuple[PaperScore, ...]
    records: tuple[Record, ...]
    baseline: Line | None = None
    difference: Difference | None = None
    missing: tuple[int, ...] = ()

    @property
    def values(self) -> dict[int, float]:
        return {record.seed: record.metrics[self.metric] for record in self.records if self.metric in record.metrics}

    @property
    def ours(self) -> Summary | None:
        return summarise(list(self.values.values())) if self.values else None

    @property
    def of_the_paper(self) -> float | None:
        """The paper's difference to its baseline."""
        if self.baseline is None or not self.paper or not self.baseline.paper:
            return None
        return self.paper[0].figure - self.baseline.paper[0].figure

    @property
    def shown(self) -> bool:
        """Whether the seeds show a difference."""
        return self.difference is not None and self.difference.detected

    @property
    def command(self) -> str:
        """The command that makes the missing run records; "" if none is missing."""
        return run_command(self.recipe.path, [self.recipe], self.missing) if self.missing else ""


Runs = Mapping[str, Sequence[Record]]  # run records by address
LineT = TypeVar("LineT", bound=Line)


@dataclass(frozen=True, kw_only=True)
class ComparisonTable(Table):
    """A table whose lines are compared over seeds. Detected differences are in bold."""

    lines: Sequence[Line]


def run_command(path: Path, recipes: Sequence[Recipe], seeds: Iterable[int]) -> str:
    """`rskip run` of these variants of a file."""
    names = [str(recipe.variant) for recipe in recipes if recipe.variant is not None]
    named = ["--variants", *names] if names else []
    return suggested_command("rskip", "run", written_path(path), *named, "--seeds", *map(str, seeds))


def comparison_table(
    name: str, recipes: Sequence[Recipe], runs: Runs, *, title: str | None, seeds: Sequence[int]
) -> ComparisonTable:
    """The table of a paper, or of a recipe.

    :param title: the paper's table; None: a recipe's.
    :param seeds: the seeds that every variant should have.
    :raises ValueError: a record was made with other settings than its variant has now, or SciPy is missing.
    """
    recorded = [record for recipe in recipes for record in runs.get(recipe.address, ())]
    scored = {metric for record in recorded for metric in record.metrics}
    lines = [line for recipe in recipes for line in _lines(recipe, runs, title, seeds, scored)]
    for at, line in enumerate(lines):
        wanted = (line.recipe.baseline, line.metric)
        baseline = next((each for each in lines if (each.recipe.address, each.metric) == wanted), None)
        lines[at] = replace(line, baseline=baseline)
    lines = compare_lines(lines)
    cells = _cells(lines)
    shown = {at: list(cells).index("difference") for at, line in enumerate(lines) if line.shown}
    return ComparisonTable(
        name=name,
        title=title or name,
        lines=lines,
        headings=list(cells),
        rows=list(zip(*cells.values(), strict=True)),
        words=len(cells.keys() & {"variant", "baseline", "measure"}),
        bold=shown.items(),
        remark=" ".join(dict.fromkeys(line.recipe.own.note for line in lines if line.recipe.own.note)),
        notes=_notes(lines),
        legend=legend(lines),
        commands=commands(lines),
        numbers=[plain_numbers(line) for line in lines],
    )


def _lines(
    recipe: Recipe, runs: Runs, title: str | None, seeds: Sequence[int], scored: Collection[str]
) -> list[Line]:
    """The lines of a variant, for one of the metrics that some record of the table has, if there are any."""
    records = tuple(runs.get(recipe.address, ()))
    recipe.check_records(records)
    figures = [figure for figure in recipe.paper if title in figure.tables]
    columns = recipe.task.shown
    main = next((column for column in columns if column.metric in scored), columns[0])
    missing = tuple(seed for seed in seeds if seed not in {record.seed for record in records})
    lines = []
    for key in dict.fromkeys(figure.key for figure in figures) if title else [main.metric]:
        of_key = tuple(figure for figure in figures if figure.key == key)
        lines.append(
            Line(
                recipe=recipe,
                metric=key if key in recipe.task.headings else main.metric,
                measure=of_key[0].measure if of_key else main.heading,
                paper=of_key,
                records=records,
                missing=missing,
            )
        )
    return lines


def compare_lines(lines: Sequence[LineT]) -> list[LineT]:
    """Lines with their differences: those that share a baseline and a metric are compared together."""
    groups: dict[tuple[str, str], list[int]] = {}
    for at, line in enumerate(lines):
        if line.baseline is not None:
            groups.setdefault((line.baseline.recipe.address, line.metric), []).append(at)
    found = list(lines)
    for group in groups.values():
        baseline, own = lines[group[0]].baseline, [lines[at] for at in group]
        assert baseline is not None
        differences = compare(baseline.values, [line.values for line in own], [not _changes(line) for line in own])
        for at, difference in zip(group, differences, strict=True):
            found[at] = replace(lines[at], difference=difference)
    return found


def legend(lines: Sequence[Line]) -> Sequence[str]:
    """LEGEND, as far as the lines have scores and tests."""
    tested = any(line.difference and line.difference.p is not None for line in lines)
    return LEGEND if tested else LEGEND[:1] if any(line.records for line in lines) else ()


def _notes(lines: Sequence[Line]) -> list[str]:
    notes = [] if any(line.records for line in lines) else ["No variant has a run record yet."]
    if any(figure.key != line.metric for line in lines for figure in line.paper):
        notes.append(_NO_SCORER)
    signatures = dict.fromkeys(record.signatures.get(line.metric) for line in lines for record in line.records)
    notes += [f"{lines[0].measure}: `{signature}`." for signature in signatures if signature]
    for line in {line.recipe.address: line for line in lines if line.baseline}.values():
        if changes := _changes(line):
            notes.append(f"{line.recipe.address} and its baseline differ in {'; '.join(changes)}.")
    unrecorded = [line.recipe.address for line in lines if not all(record.precision for record in line.records)]
    if unrecorded and any(record.precision for line in lines for record in line.records):
        notes.append(f"Precision not recorded for all seeds: {', '.join(dict.fromkeys(unrecorded))}.")
    return notes + seeds_needed(lines)


def seeds_needed(lines: Sequence[Line]) -> list[str]:
    """How many seeds would detect the differences that were tested and not detected."""
    tested = {line.recipe.address: line.difference for line in lines if line.difference and line.difference.p}
    missed = {name: each.needed or f"more than {MOST_SEEDS}" for name, each in tested.items() if not each.detected}
    listed = ", ".join(f"{name} {seeds}" for name, seeds in missed.items())
    note = f"Seeds needed to detect the measured difference with probability {POWER}, if it is true: {listed}."
    return [note] if missed else []


def _changes(line: Line) -> list[str]:
    """The differences of a variant and its baseline besides the connection: setting, value, the baseline's value."""
    assert line.baseline is not None
    now, before = flat_config(line.recipe.written), flat_config(line.baseline.recipe.written)
    precisions = [{record.precision for record in each.records} - {""} for each in (line, line.baseline)]
    computed = line.records and line.baseline.records  # the precision that was used says more than the setting
    expected = (*_CONNECTION, *(_PRECISION if computed else ()))
    keys = [key for key in {**before, **now} if now.get(key) != before.get(key) and key not in expected]
    default = "the default"
    changes = [f"{key}: {now.get(key, default)} against {before.get(key, default)}" for key in keys]
    if all(precisions) and precisions[0] != precisions[1]:
        changes.append(f"precision: {' against '.join(' and '.join(sorted(each)) for each in precisions)}")
    if computed and line.records[0].data_checksums != line.baseline.records[0].data_checksums:
        changes.append("the content of the data")
    return changes


def commands(lines: Sequence[Line]) -> list[str]:
    """The commands that make the missing run records, one per recipe file."""
    missing: dict[tuple[Path, tuple[int, ...]], dict[str, Recipe]] = {}
    for line in lines:
        if line.missing:
            missing.setdefault((line.recipe.path, line.missing), {})[line.recipe.address] = line.recipe
    return [run_command(path, list(recipes.values()), seeds) for (path, seeds), recipes in missing.items()]


def _cells(lines: Sequence[Line]) -> dict[str, Sequence[str]]:
    """Columns by heading, without empty columns except `ours`."""
    several = len({line.measure for line in lines}) > 1
    baselines = {line.baseline.recipe.address for line in lines if line.baseline}
    measure = "" if several else lines[0].measure
    cells: dict[str, Sequence[str]] = {
        "variant": [line.recipe.address for line in lines],
        "baseline": [line.baseline.recipe.address if line.baseline and len(baselines) > 1 else "" for line in lines],
        "measure": [line.measure if several else "" for line in lines],
        f"paper's {measure}".rstrip(): [
            "; ".join(f"{each.figure} ({each.note})" if each.note else f"{each.figure}" for each in line.paper)
            for line in lines
        ],
        "paper's difference": [_signed(line.of_the_paper) for line in lines],
        f"our {measure}" if measure else "ours": [_ours(line) for line in lines],
        **dict(zip(COMPARED, zip(*map(comparison_cells, lines), strict=True), strict=True)),
    }
    return {heading: column for heading, column in cells.items() if any(column) or heading.startswith("our")}


def comparison_cells(line: Line) -> tuple[str, ...]:
    """The cells of COMPARED."""
    found = line.difference
    if found is None or found.p is None:
        return _difference(line), "", ""
    return _difference(line), probability_text(found.p), f"{found.detectable:.2f}"


def plain_numbers(line: Line) -> dict[str, Any]:
    """A row of the CSV, with empty cells for missing numbers."""
    ours, found = line.ours, line.difference
    low, high = found.interval if found and found.interval else (None, None)
    numbers = {
        "paper": line.paper[0].figure if line.paper else None,
        "paper_difference": line.of_the_paper,
        "mean": ours.mean if ours else None,
        "std": ours.std if ours else None,
        "difference": found.mean if found else None,
        "low": low,
        "high": high,
        "p": found.p if found else None,
        "detectable": found.detectable if found else None,
        "seeds_needed": found.needed if found else None,
    }
    return {
        "variant": line.recipe.address,
        "description": line.recipe.own.description,
        "measure": line.metric,
        "baseline": line.baseline.recipe.address if line.baseline else "",
        "seeds": " ".join(map(str, line.values)),
        **{name: "" if value is None else round(value, _DECIMALS) for name, value in numbers.items()},
        "command": line.command,
    }


def _ours(line: Line) -> str:
    diverged, count = sum(record.diverged for record in line.records), len(line.values)
    said = [f"{line.ours} ({count if count > 1 or diverged else 'one seed'})"] if line.ours else []
    return ", ".join([*said, *([f"{diverged} diverged"] if diverged else [])])


def _difference(line: Line) -> str:
    found = line.difference
    if found is None:
        return ""
    interval = f" [{_signed(found.interval[0])}, {_signed(found.interval[1])}]" if found.interval else ""
    pairs = f" ({'one pair' if found.pairs == 1 else f'{found.pairs} pairs'})" if found.unpooled else ""
    return f"{_signed(found.mean)}{interval}{pairs}"


def _signed(value: float | None) -> str:
    if value is None:
        return ""
    text = f"{value:+.2f}"
    return "0.00" if text in ("+0.00", "-0.00") else text


def probability_text(p: float | None) -> str:
    """A p value as tables show it; "" for None."""
    return "" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"
