"""The project's tables and figures, made from its records and measurements.

A table of results has one row a run, the mean over its seeds.

results/README.md, docs/tables.md (`rskip.experiments.tables`) and docs/claims.md (`rskip.experiments.claims`) are
made whole. In README.md and docs/, a table stands between the lines `<!-- rskip report: begin NAME -->` and
`<!-- rskip report: end NAME -->`, where NAME is a table of docs/tables.md, of a recipe's grid
(`rskip.experiments.grids`), of what connections cost (`rskip.experiments.costs`), or a shell pattern of recipe names
such as `multi30k_en_de_*`; runs with overrides are left to results/README.md.

docs/figures/figures.yaml says what each figure shows (`Figure`, by name). Its CSV, docs/figures/NAME.csv, holds what is
drawn and comes out the same byte for byte; NAME.svg keeps the sum of what it was drawn from, since its own bytes
differ between versions of matplotlib.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import msgspec

from rskip.analysis.charts import Chart, View, chart, joined, learning_curves
from rskip.analysis.figures import draw_chart
from rskip.analysis.measurement import Measurement, read_measurement
from rskip.analysis.trace import read_trace
from rskip.experiments.claims import PAGE, claims_page, judge_claims
from rskip.experiments.results import Results
from rskip.experiments.tables import Tables
from rskip.files.whole import atomic_file
from rskip.records import Record, read_record
from rskip.records.tables import fill_in, markdown_table, markdown_text, outdated_documents, summarise
from rskip.settings.check import convert
from rskip.settings.errors import SettingError
from rskip.settings.text import read_yaml
from rskip.tasks import Column, dataset_of_record, task_of_record, tasks
from rskip.tasks.run import config_difference

FIGURES, LIST = Path("docs", "figures"), Path("study", "figures.yaml")
OVERVIEW, TABLES = Path("study", "results", "README.md"), Path("docs", "tables.md")
_Name = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9_]+$", extra={"expected": "a name of a-z, 0-9 and _"})]
_Source = Annotated[str, msgspec.Meta(pattern=r"^(docs/figures|study/results)/(?!.*\.\.)")]
_SOURCES = "a file in docs/figures/ or study/results/, or a list of them"
_TABLES_HEADER = """\
# Tables

Made from the records in results/ and the papers' figures in recipes/ by `rskip report`; don't edit it by hand. What the
columns are: [recipes.md](recipes.md#tables).
"""
NO_RECORDS = "No records yet.\n"
_HEADER = "# Results\n\nMade from the records in this folder by `rskip report`; don't edit it by hand.\n"


def outdated_tables(root: Path, results: Results) -> dict[Path, str]:
    """The files whose tables differ from the records, or are missing, with the text that they should have.

    :raises ValueError: a record that doesn't agree with its recipe, or a bad marker.
    """
    comparisons = results.comparisons
    whole = {OVERVIEW: _overview(results.records)}
    if comparisons.names:
        whole[TABLES] = _all_tables(comparisons)
    if claims := judge_claims(root, comparisons):
        whole[PAGE] = claims_page(claims)
    texts = {
        path: text
        for name, text in whole.items()
        if not (path := root / name).is_file() or path.read_text(encoding="utf-8") != text
    }

    def table(name: str) -> str:
        if name in results.names:
            return results.table(name).render("markdown")
        return results_table(r for r in results.records if not r.overrides and fnmatchcase(r.address, name))

    filled = outdated_documents(root, lambda text, source: fill_in(text, "rskip report", table, source=source))
    return texts | filled


def results_table(records: Iterable[Record]) -> str:
    """A table of the runs, the signatures of its scores below it; "No records yet." where there are none.

    A figure is the mean ± the sample standard deviation over the run's seeds, or one seed's figure.

    :raises ValueError: a run's records were made with different settings or scorers.
    """
    runs = [_check_run(list(group)) for _, group in groupby(records, key=lambda record: record.run)]
    if not runs:
        return NO_RECORDS
    columns = [
        (task.name, column)
        for task in tasks().values()
        for column in task.columns
        if any(run[0].kind == task.name and any(column.metric in record.metrics for record in run) for run in runs)
    ]
    headings = [column.heading for _, column in columns]
    rows = [
        [
            run_label(run[0]),
            f"{run[0].parameters:,}",
            ", ".join(str(record.seed) for record in run),
            *(_figure(run, column) if run[0].kind == kind else "" for kind, column in columns),
            f"{fmean(record.training['seconds'] for record in run) / 60:.0f}",
            "; ".join(dict.fromkeys(machine_label(record.machine) for record in run)),
        ]
        for run in runs
    ]
    table = markdown_table(["run", "parameters", "seeds", *headings, "training, minutes", "machine"], rows)
    return "\n".join([table, "", *_notes(runs), ""])


def _check_run(run: list[Record]) -> list[Record]:
    first = run[0]
    for other in run[1:]:
        if other.config != first.config:
            raise ValueError(
                f"{first.path} and {other.path} were made with different settings "
                f"({config_difference(first.config, other.config)}): remove the one that is out of date"
            )
    scored = _scored(run)
    for other in scored[1:]:
        if other.signatures != scored[0].signatures:
            raise ValueError(f"{scored[0].path} and {other.path} were scored differently: they can't be averaged")
    return run


def _scored(run: Sequence[Record]) -> list[Record]:
    return [record for record in run if not record.diverged]


def _figure(run: Sequence[Record], column: Column) -> str:
    values = [record.metrics[column.metric] for record in run if column.metric in record.metrics]
    diverged = sum(record.diverged for record in run)
    said = [f"{diverged} diverged" if len(run) > 1 else "diverged"] if diverged else []
    if values:
        said.insert(0, f"{summarise(values)} ({'one seed' if len(values) == 1 else f'{len(values)} seeds'})")
    return ", ".join(said)


def run_label(record: Record) -> str:
    """The recipe's name, and what was overridden."""
    changes = ", ".join(f"{key}={value}" for key, value in record.overrides.items())
    return f"{record.address} with {changes}" if changes else record.address


def machine_label(machine: Mapping[str, Any]) -> str:
    """The GPUs, or the processor and its threads."""
    if machine.get("gpu"):
        count = machine.get("gpus", 1)
        return f"{count} × {machine['gpu']}" if count > 1 else str(machine["gpu"])
    return f"{machine['cpu']}, {machine['threads']} thread{'s' if machine['threads'] != 1 else ''}"


def _notes(runs: Sequence[Sequence[Record]]) -> list[str]:
    notes = []
    if any(len(run) > 1 for run in runs):
        notes.append("± is the sample standard deviation over seeds.")
    signed: dict[tuple[str, str], list[Record]] = {}
    for run in runs:
        for record in _scored(run)[:1]:
            for metric, signature in record.signatures.items():
                signed.setdefault((metric, signature), []).append(run[0])
    for (metric, signature), firsts in signed.items():
        others = any(m == metric and s != signature for m, s in signed)
        of = f" of {', '.join(map(run_label, firsts))}" if others else ""
        heading = dict(task_of_record(firsts[0]).columns).get(metric, metric)
        notes.append(f"{heading}{of}: `{signature}`.")
    return ["  \n".join(map(markdown_text, notes))] if notes else []


def _overview(records: Sequence[Record]) -> str:
    by_data: dict[str, list[Record]] = {}
    for record in records:
        by_data.setdefault(dataset_of_record(record), []).append(record)
    if not by_data:
        return f"{_HEADER}\n{NO_RECORDS}"
    return _HEADER + "".join(
        f"\n## {markdown_text(name)}\n\n{results_table(by_data[name])}" for name in sorted(by_data)
    )


def _all_tables(tables: Tables) -> str:
    """The papers' tables, then those of recipes whose rows no paper has."""
    parts = [_TABLES_HEADER]
    for name in tables.names:
        table = tables.table(name)
        if name in tables.of_papers or table.records:
            parts.append(f"## {markdown_text(table.title)}\n\n`rskip report {name}`\n\n{table.render('markdown')}")
    return "\n".join(parts)


class Figure(View, frozen=True, kw_only=True):
    """A figure in docs/figures/figures.yaml: a view of its sources' data, or of a grid's records.

    :param source: files from the project's folder, as shell patterns: measurements in docs/figures/, or records
        results/RUN/SEED.json for their learning curves, or traces results/RUN/SEED.probe.jsonl. All are overlaid.
    :param grid: the name of a grid's table.
    """

    source: Annotated[_Source | tuple[_Source, ...], msgspec.Meta(extra={"expected": _SOURCES})] = ()
    grid: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.source and not self.grid:
            raise SettingError("source", "is missing", expected=f"{_SOURCES}; or grid, a table's name")
        if self.source and self.grid:
            raise SettingError("grid", "has a source beside it", expected="one of them")


@dataclass(frozen=True)
class FigureFiles:
    """A figure's files, beside each other, and what they should hold.

    :param stem: the files' path without .csv and .svg.
    :param sources: what it is made of, from the project's folder.
    :param conditions: of its measurement; empty for records.
    """

    stem: Path
    title: str
    chart: Chart
    sources: tuple[str, ...] = ()
    conditions: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def csv(self) -> str:
        return self.chart.to_csv()

    @property
    def drawn_from(self) -> str:
        """The sum of all that the picture shows, which it keeps."""
        return hashlib.sha256(f"{self.chart.kind}\n{self.title}\n{self.csv}".encode()).hexdigest()

    def outdated(self) -> list[Path]:
        """The CSV if it differs, and the picture if it was drawn from other data or is missing."""
        table, picture = (self.stem.with_suffix(suffix) for suffix in (".csv", ".svg"))
        outdated = [] if table.is_file() and table.read_text(encoding="utf-8") == self.csv else [table]
        if not picture.is_file() or self.drawn_from.encode() not in picture.read_bytes():
            outdated.append(picture)
        return outdated

    def write(self) -> list[Path]:
        """Writes what is out of date, the CSV first; returns the paths.

        :raises ValueError: matplotlib is missing.
        """
        outdated = self.outdated()
        for path in outdated:
            if path.suffix != ".csv":
                draw_chart(self.chart, path, title=self.title, description=self.drawn_from)
                continue
            with atomic_file(path) as temporary:
                temporary.write_text(self.csv, encoding="utf-8")
        return outdated


def figures(root: Path, results: Results) -> list[FigureFiles]:
    """All figures of the project; none without docs/figures/figures.yaml.

    :raises SettingError: a figure can't be made; names the figure, the key and what is wrong.
    """
    file = root / LIST
    if not file.is_file():
        return []
    source = str(LIST)
    chosen = convert(read_yaml(file), dict[_Name, Figure], source=source)
    made = []
    for name, figure in chosen.items():
        try:
            if figure.grid:
                grids = results.grids
                if figure.grid not in grids.names:
                    raise SettingError.of_value("grid", figure.grid, ", ".join(grids.names))
                sources, measurement = grids.sources(figure.grid), grids.measurement(figure.grid)
            else:
                paths = _source_paths(root, figure)
                sources = [path.relative_to(root) for path in paths]
                measurement = _read_sources(root, paths)
            files = FigureFiles(
                stem=root / FIGURES / name,
                title=figure.title,
                chart=chart(measurement, figure),
                sources=tuple(map(str, sources)),
                conditions=measurement.conditions,
            )
            made.append(files)
        except SettingError as error:
            raise (error if error.source else error.within(name, source=source)) from None
    return made


def _source_paths(root: Path, figure: Figure) -> list[Path]:
    found: list[Path] = []
    for pattern in [figure.source] if isinstance(figure.source, str) else figure.source:
        paths = [path for path in sorted(root.glob(pattern)) if not path.name.startswith(".")]
        if not paths:
            raise SettingError.of_value("source", pattern, "a file that is there, or a pattern of such files")
        found += [path for path in paths if path not in found]
    return found


def _read_sources(root: Path, found: Sequence[Path]) -> Measurement:
    records = [path for path in found if path.suffix == ".json" and FIGURES not in path.relative_to(root).parents]
    measurements = [learning_curves(map(read_record, records))] if records else []
    for path in found:
        if path.suffix == ".jsonl":
            seed = path.name.removesuffix(".probe.jsonl")
            if not seed.isdecimal():
                raise SettingError.of_value("source", str(path.relative_to(root)), "RUN/SEED.probe.jsonl of a trace")
            measurements.append(read_trace(path, model=read_record(path.with_name(f"{seed}.json")).run, seed=int(seed)))
        elif path not in records:
            measurements.append(read_measurement(path))
    return joined(measurements)
