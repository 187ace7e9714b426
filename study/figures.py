"""Makes the figures of docs/ from the records and measurements that study/figures.yaml lists by name (see `Figure`).

A figure's data, docs/figures/NAME.csv, is reproducible byte for byte. NAME.svg is not, since it depends on the version
of matplotlib; it therefore contains a checksum of its data.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from rskip.analysis.figures import Chart, View
from rskip.analysis.measurement import Measurement, joined, learning_curves, read_measurement
from rskip.analysis.trace import read_trace
from rskip.experiments.results import Results
from rskip.files.whole import atomic_file
from rskip.records import read_record
from rskip.settings.check import convert
from rskip.settings.errors import errors_about
from rskip.settings.text import read_yaml
from study.baseline import read_comparison
from study.costs import Costs
from study.grid_drawing import chart_of, draw_chart, grid_measurement
from study.which import differences

FIGURES, LIST = Path("docs", "figures"), Path("study", "figures.yaml")


class Figure(View, frozen=True, kw_only=True):
    """A figure in study/figures.yaml: a view of its sources' data, or of a grid's records.

    :param source: files from the project's folder, as shell patterns: measurements in docs/figures/, or records
        results/RUN/SEED.json for their learning curves, or probes results/RUN/SEED.probe.jsonl. All are overlaid.
    :param grid: the name of a grid's table; with `kind: times` a comparison in study/baseline.py.
    """

    source: str | tuple[str, ...] = ()
    grid: str = ""


@dataclass(frozen=True)
class FigureFiles:
    """The two files of a figure, with their expected content.

    :param stem: the path of both files, without .csv and .svg.
    """

    stem: Path
    title: str
    chart: Chart

    @cached_property
    def csv(self) -> str:
        return self.chart.to_csv()

    @property
    def drawn_from(self) -> str:
        """The checksum of all data in the SVG; the SVG also contains it."""
        return hashlib.sha256(f"{self.chart.kind}\n{self.title}\n{self.csv}".encode()).hexdigest()

    def outdated(self) -> list[Path]:
        """The CSV if it differs, and the SVG if it is missing or was drawn from other data."""
        table, plot = (self.stem.with_suffix(suffix) for suffix in (".csv", ".svg"))
        outdated = [] if table.is_file() and table.read_text(encoding="utf-8") == self.csv else [table]
        if not plot.is_file() or self.drawn_from.encode() not in plot.read_bytes():
            outdated.append(plot)
        return outdated

    def write(self) -> list[Path]:
        """Writes the files that are out of date, the CSV first, and returns their paths.

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


def figures(root: Path, results: Results, costs: Costs) -> list[FigureFiles]:
    """All figures of the project; empty without study/figures.yaml."""
    file = root / LIST
    if not file.is_file():
        return []
    made = []
    for name, figure in convert(read_yaml(file), dict[str, Figure], source=str(LIST)).items():
        if figure.kind == "times":
            measurement = read_comparison(root, results, figure.grid).times()
        elif figure.kind == "differences":
            measurement = differences(root, results)
        elif figure.grid:
            measurement = grid_measurement(results, figure.grid, costs)
        else:
            measurement = _read_sources(root, [figure.source] if isinstance(figure.source, str) else figure.source)
        with errors_about(f"{LIST}: {name}"):
            chart = chart_of(measurement, figure)
        made.append(FigureFiles(stem=root / FIGURES / name, title=figure.title, chart=chart))
    return made


def _read_sources(root: Path, patterns: Sequence[str]) -> Measurement:
    found = dict.fromkeys(path for each in patterns for path in sorted(root.glob(each)) if path.name[0] != ".")
    assert found, f"{LIST}: no file matches {patterns}"
    records = [path for path in found if path.suffix == ".json" and FIGURES not in path.relative_to(root).parents]
    measurements = [learning_curves(map(read_record, records))] if records else []
    for path in found:
        if path.suffix == ".jsonl":
            seed = path.name.removesuffix(".probe.jsonl")
            measurements.append(read_trace(path, model=read_record(path.with_name(f"{seed}.json")).run, seed=int(seed)))
        elif path not in records:
            measurements.append(read_measurement(path))
    return joined(measurements)
