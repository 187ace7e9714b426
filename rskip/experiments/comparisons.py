"""Tables that compare variants: the papers' tables, whose scores recipes hold in `paper`, and tables of one recipe.

`rskip-table-1` has all scores with `table: rSkip Table 1` in a recipe. `flickr8k` has the variants of
recipes/flickr8k.yaml, if a variant has a `baseline`. Each line is a metric of a variant: our mean over seeds, the
paper's score, and the difference from the baseline by pairs of seeds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rskip.experiments.recipe import PaperScore, Recipe
from rskip.records import Record
from rskip.records.address import run_path
from rskip.records.statistics import CONFIDENCE, POWER, Difference, detectable, holm, paired_difference
from rskip.records.tables import Summary, Table, summarise
from rskip.settings.errors import SettingError, did_you_mean
from rskip.tasks.run import flat_config

SEEDS = (1, 2, 3)
_CONNECTION = ("train.arch", "train.connection")  # what variants are expected to differ in
_PRECISION = ("train.bf16", "train.fp16", "train.precision")  # what was asked for
COMPARED = ("difference", "p", "MDE")  # headings
_DECIMALS = 4


@dataclass(frozen=True, kw_only=True)
class Line:
    """One metric of a variant.

    :param recipe: the variant.
    :param metric: the metric's name in run records.
    :param measure: the metric's name in the table.
    :param paper: the papers' scores for it in this table.
    :param records: the run records of the variant, by seed.
    :param baseline: the line of its baseline.
    :param corrected: p-value after Holm's correction over the table.
    :param detectable: minimum detectable effect (`statistics.detectable`).
    :param missing: seeds without a record, of those asked for.
    """

    recipe: Recipe
    metric: str
    measure: str
    paper: tuple[PaperScore, ...]
    records: tuple[Record, ...]
    baseline: Line | None = None
    difference: Difference | None = None
    corrected: float | None = None
    detectable: float | None = None
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
        return self.corrected is not None and self.corrected < 1 - CONFIDENCE

    @property
    def command(self) -> str:
        """The command that makes the missing run records; "" if none is missing."""
        return run_command(self.recipe.path, [self.recipe], self.missing) if self.missing else ""


@dataclass(frozen=True, kw_only=True)
class ComparisonTable(Table):
    """A table whose lines are compared over seeds. Detected differences are in bold."""

    lines: Sequence[Line]


def run_command(path: Path, recipes: Sequence[Recipe], seeds: Iterable[int]) -> str:
    """`rskip run` of these variants of a file."""
    names = [str(recipe.variant) for recipe in recipes if recipe.variant is not None]
    named = [f"--variants {' '.join(names)}"] if names else []
    return " ".join(["rskip run", f"recipes/{path.name}", *named, f"--seeds {' '.join(map(str, seeds))}"])


def records_by_run(records: Iterable[Record]) -> dict[str, list[Record]]:
    """The run records of each run, without those with overrides, which belong to no variant."""
    found: dict[str, list[Record]] = {}
    for record in records:
        if not record.overrides:
            found.setdefault(record.run, []).append(record)
    return found


class Comparisons:
    """The tables of a project, from its recipes and the run records in results/.

    :param recipes: all recipes.
    :param records: all run records.
    """

    def __init__(self, recipes: Iterable[Recipe], records: Iterable[Record]) -> None:
        self.recipes = {recipe.address: recipe for recipe in recipes}
        self._of_table: dict[str, list[Recipe]] = {}
        self._titles: dict[str, str] = {}
        of_files: dict[str, list[Recipe]] = {}
        for recipe in self.recipes.values():
            of_files.setdefault(recipe.path.stem, []).append(recipe)
            for title in dict.fromkeys(table for figure in recipe.paper for table in figure.tables):
                self._titles.setdefault(_slug(title), title)
                self._of_table.setdefault(_slug(title), []).append(recipe)
        studies = {name: found for name, found in of_files.items() if any(recipe.baseline for recipe in found)}
        self._of_table = dict(sorted(self._of_table.items(), key=lambda item: _natural(item[0])))
        self.of_papers = tuple(self._of_table)
        self.of_recipes = tuple(name for name in studies if name not in self._of_table)
        self._of_table |= {name: studies[name] for name in self.of_recipes}
        self._made: dict[tuple[str, tuple[int, ...]], ComparisonTable] = {}
        self._records = records_by_run(records)

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.of_papers, *self.of_recipes)

    def table(self, name: str, *, seeds: Sequence[int] = SEEDS) -> ComparisonTable:
        """The table of this name.

        :param seeds: that every variant is to have.
        :raises SettingError: there is none.
        :raises ValueError: a record was made with other settings than its variant has now, or SciPy is missing.
        """
        if name not in self._of_table:
            raise no_table(name, self.names)
        if (made := self._made.get((name, tuple(seeds)))) is None:
            made = self._made[name, tuple(seeds)] = self._make(name, seeds)
        return made

    def _make(self, name: str, seeds: Sequence[int]) -> ComparisonTable:
        title = self._titles.get(name)
        lines = [line for recipe in self._of_table[name] for line in self._lines(recipe, title, seeds)]
        for at, line in enumerate(lines):
            wanted = (line.recipe.baseline, line.metric)
            baseline = next((each for each in lines if (each.recipe.address, each.metric) == wanted), None)
            found = paired_difference(line.values, baseline.values) if baseline else None
            lines[at] = replace(line, baseline=baseline, difference=found)
        lines = corrected(lines)
        cells = _cells(lines)
        ours = next(at for at, heading in enumerate(cells) if heading.startswith("our"))
        shown = {at: list(cells).index("difference") for at, line in enumerate(lines) if line.shown}
        return ComparisonTable(
            name=name,
            title=title or name,
            lines=lines,
            headings=list(cells),
            rows=list(zip(*cells.values(), strict=True)),
            words=len(cells.keys() & {"variant", "baseline", "measure"}),
            descriptions=[line.recipe.own.description for line in lines],
            bold=shown.items(),
            records={(at, ours): line.records for at, line in enumerate(lines) if line.records},
            notes=_notes(lines),
            commands=_commands(lines),
            numbers=[_numbers(line) for line in lines],
        )

    def _lines(self, recipe: Recipe, title: str | None, seeds: Sequence[int]) -> list[Line]:
        records = tuple(self._records.get(recipe.address, ()))
        for record in records:
            recipe.check_record(record)
        figures = [figure for figure in recipe.paper if title in figure.tables]
        main = recipe.task.columns[0]
        metrics = {column.metric for column in (*recipe.task.columns, *recipe.task.more_figures)}
        missing = tuple(seed for seed in seeds if seed not in {record.seed for record in records})
        lines = []
        for key in dict.fromkeys(figure.key for figure in figures) if title else [main.metric]:
            of_key = tuple(figure for figure in figures if figure.key == key)
            lines.append(
                Line(
                    recipe=recipe,
                    metric=key if key in metrics else main.metric,
                    measure=of_key[0].measure if of_key else main.heading,
                    paper=of_key,
                    records=records,
                    missing=missing,
                )
            )
        return lines


def no_table(name: str, known: Sequence[str]) -> SettingError:
    """The error if no table in `known` has the name."""
    listed = ", ".join(known) or "none, because no recipe has a baseline"
    return SettingError("", f"no table {name}{did_you_mean(name, known)}; the tables: {listed}")


def begun(table: ComparisonTable) -> list[Path]:
    """Folders of missing runs that were started in the current folder, and are running or were stopped."""
    folders = [
        run_path(Path(line.recipe.own.runs), line.recipe.address, str(seed))
        for line in table.lines
        for seed in line.missing
    ]
    return [folder for folder in dict.fromkeys(folders) if (folder / "run.json").exists()]


def corrected(lines: Sequence[Line]) -> list[Line]:
    """Lines whose p are corrected for all their comparisons, with the difference that each could have shown."""
    tested = [line.difference.p for line in lines if line.difference and line.difference.p is not None]
    p = iter(holm(tested))
    found = []
    for line in lines:
        seen = line.difference
        if seen is not None and seen.p is not None:
            assert seen.std is not None
            smallest = detectable(seen.std, pairs=len(seen.seeds), comparisons=len(tested))
            line = replace(line, corrected=next(p), detectable=smallest)
        found.append(line)
    return found


def _notes(lines: Sequence[Line]) -> list[str]:
    notes = []
    if not any(line.records for line in lines):
        notes.append("No variant has a run record yet.")
    if any(line.ours and line.ours.std is not None for line in lines):
        notes.append("Ours: mean ± sample standard deviation (seeds).")
    notes += comparison_notes(lines)
    for key in dict.fromkeys(figure.key for line in lines for figure in line.paper if figure.key != line.metric):
        scored = next(line for line in lines if any(figure.key == key for figure in line.paper))
        heading = dict(scored.recipe.task.columns)[scored.metric]
        notes.append(f"{scored.measure}: the paper names no scorer; ours is {heading}.")
    signatures = dict.fromkeys(record.signatures.get(line.metric) for line in lines for record in line.records)
    notes += [f"{lines[0].measure}: `{signature}`." for signature in signatures if signature]
    for line in {line.recipe.address: line for line in lines if line.baseline}.values():
        if changes := _changes(line):
            notes.append(f"{line.recipe.address} and its baseline differ in {'; '.join(changes)}.")
    return notes + _unrecorded(lines)


def comparison_notes(lines: Sequence[Line], *, baseline: str = "") -> list[str]:
    """What the differences of these lines are, and whether any was detected.

    :param baseline: what they are to, where that is not the lines' one baseline.
    """
    notes = []
    tested = [line for line in lines if line.corrected is not None]
    if baselines := _baselines(lines):
        own = [line.baseline for line in lines if line.baseline and line.of_the_paper is not None]
        scores = {each.paper[0].figure for each in own}
        baseline = baseline or (baselines[0] if len(baselines) == 1 else "the baseline")
        if scores:
            score = f" ({scores.pop()})" if len(scores) == 1 else ""
            notes.append(f"The paper's differences are from its score of {baseline}{score}.")
        if any(line.difference for line in lines):
            notes.append(f"Differences are the variant's score minus that of {baseline} with the same seed.")
    if any(line.difference and len(line.difference.seeds) == 1 for line in lines):
        notes.append("One pair of seeds gives no interval and no test.")
    if tested:
        notes.append(
            f"In brackets: the {CONFIDENCE:.0%} interval (paired t), not corrected for the number of comparisons. p is "
            f"corrected for it (Holm, {len(tested)} in this table). Bold: detected, p below {1 - CONFIDENCE:.2f}. MDE: "
            "minimum detectable effect, the smallest true difference that this number of pairs detects with "
            f"probability {POWER} at the level {1 - CONFIDENCE:.2f}/{len(tested)}, given their standard deviation."
        )
        if not any(line.shown for line in tested):
            notes.append("No difference detected.")
    return notes


def _changes(line: Line) -> list[str]:
    """The differences of a variant and its baseline besides the connection: setting, value, the baseline's value."""
    assert line.baseline is not None
    now, before = flat_config(line.recipe.written), flat_config(line.baseline.recipe.written)
    precisions = [{record.precision for record in each.records} - {""} for each in (line, line.baseline)]
    computed = line.records and line.baseline.records  # the precision that was used says more than the setting
    expected = (*_CONNECTION, *(_PRECISION if computed else ()))
    keys = [key for key in {**before, **now} if now.get(key) != before.get(key) and key not in expected]
    changes = [f"{key}: {now.get(key, 'none')} against {before.get(key, 'none')}" for key in keys]
    if all(precisions) and precisions[0] != precisions[1]:
        changes.append(f"precision: {' against '.join(' and '.join(sorted(each)) for each in precisions)}")
    return changes


def _unrecorded(lines: Sequence[Line]) -> list[str]:
    """The variants of a table that lack the precision of some seeds, if others have it."""
    if not any(record.precision for line in lines for record in line.records):
        return []
    notes = {}
    for line in lines:
        without = sum(not record.precision for record in line.records)
        seeds = "all seeds" if without == len(line.records) else "some seeds"
        if without:
            notes[line.recipe.address] = f"The precision of {seeds} of {line.recipe.address} was not recorded."
    return list(notes.values())


def _baselines(lines: Sequence[Line]) -> list[str]:
    return list(dict.fromkeys(line.baseline.recipe.address for line in lines if line.baseline))


def _slug(title: str) -> str:
    return re.sub(r"\s+", "-", title.strip().lower())


def _natural(name: str) -> tuple[Any, ...]:
    """rSkip's before SAS's, tables before sections and footnotes, by number."""
    paper, _, rest = name.partition("-")
    return paper, "table" not in rest, [int(number) for number in re.findall(r"\d+", rest)]


def _commands(lines: Sequence[Line]) -> list[str]:
    """The commands that make the missing run records, one per recipe file."""
    missing: dict[tuple[Path, tuple[int, ...]], dict[str, Recipe]] = {}
    for line in lines:
        if line.missing:
            missing.setdefault((line.recipe.path, line.missing), {})[line.recipe.address] = line.recipe
    return [run_command(path, list(recipes.values()), seeds) for (path, seeds), recipes in missing.items()]


def _cells(lines: Sequence[Line]) -> dict[str, Sequence[str]]:
    """Columns by heading, without empty columns except `ours`."""
    several = len({line.measure for line in lines}) > 1
    baselines = _baselines(lines)
    measure = "" if several else lines[0].measure
    cells: dict[str, Sequence[str]] = {
        "variant": [line.recipe.address for line in lines],
        "baseline": [line.baseline.recipe.address if line.baseline and len(baselines) > 1 else "" for line in lines],
        "measure": [line.measure if several else "" for line in lines],
        f"paper's {measure}".rstrip(): [_papers(line) for line in lines],
        "paper's difference": [_signed(line.of_the_paper) for line in lines],
        f"our {measure}" if measure else "ours": [_ours(line) for line in lines],
        **dict(zip(COMPARED, zip(*map(comparison_cells, lines), strict=True), strict=True)),
    }
    return {heading: column for heading, column in cells.items() if any(column) or heading.startswith("our")}


def comparison_cells(line: Line) -> tuple[str, ...]:
    """The cells of COMPARED."""
    detectable = "" if line.detectable is None else f"{line.detectable:.2f}"
    return _difference(line), _probability(line.corrected), detectable


def _numbers(line: Line) -> dict[str, Any]:
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
        "p_holm": line.corrected,
        "detectable": line.detectable,
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


def _papers(line: Line) -> str:
    return "; ".join(f"{each.figure} ({each.note})" if each.note else f"{each.figure}" for each in line.paper)


def _ours(line: Line) -> str:
    diverged = sum(record.diverged for record in line.records)
    if line.ours is None or diverged:
        scored = [] if line.ours is None else [f"{line.ours} ({len(line.values)})"]
        return ", ".join([*scored, *([f"{diverged} diverged"] if diverged else [])])
    count = len(line.values)
    return f"{line.ours} ({count})" if count > 1 else f"{line.ours} (one seed)"


def _difference(line: Line) -> str:
    found = line.difference
    if found is None:
        return ""
    if found.interval is None:
        return f"{_signed(found.mean)} ({'one pair' if len(found.seeds) == 1 else f'{len(found.seeds)} pairs'})"
    low, high = found.interval
    return f"{_signed(found.mean)} [{_signed(low)}, {_signed(high)}] ({len(found.seeds)} pairs)"


def _signed(value: float | None) -> str:
    if value is None:
        return ""
    text = f"{value:+.2f}"
    return "0.00" if text in ("+0.00", "-0.00") else text


def _probability(p: float | None) -> str:
    return "" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"
