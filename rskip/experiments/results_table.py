"""Tables in Markdown from records: one row a run, the mean over its seeds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import fmean, stdev

from rskip.experiments.config_difference import config_difference
from rskip.experiments.record import Record

NO_RECORDS = "No records yet.\n"


@dataclass(frozen=True)
class Column:
    """A metric's column: the kind of recipe whose records have it, its name there, and its heading."""

    kind: str
    metric: str
    heading: str

    def figure(self, record: Record) -> float | None:
        """The record's figure, None where it has none: the same name is another thing in another kind."""
        return record.metrics.get(self.metric) if record.kind == self.kind else None


COLUMNS = (
    Column("translation", "sacrebleu", "sacreBLEU"),
    Column("translation", "chrf", "chrF"),
    Column("translation", "tokenised_bleu", "tokenised BLEU"),
    Column("translation", "compound_split_bleu", "compound BLEU"),
    Column("translation", "accuracy", "exactly right, %"),
    Column("vision", "error", "error, %"),
    Column("vision", "accuracy", "accuracy, %"),
)


def results_table(records: Iterable[Record]) -> str:
    """A table of the runs, the signatures of its scores below it; "No records yet." where there are none.

    A figure is the mean ± the sample standard deviation over the run's seeds, or one seed's figure. Raises
    ValueError where a run's records were made with different settings or scorers.
    """
    runs = [_check_run(list(group)) for _, group in groupby(records, key=lambda record: record.run)]
    if not runs:
        return NO_RECORDS
    columns = [c for c in COLUMNS if any(c.figure(record) is not None for run in runs for record in run)]
    headings = ["run", "parameters", "seeds", *(c.heading for c in columns), "training, minutes", "machine"]
    lines = [_line(headings), _line(["---"] * len(headings))]
    for run in runs:
        first = run[0]
        lines.append(
            _line(
                [
                    _run_label(first),
                    f"{first.parameters:,}",
                    ", ".join(str(record.seed) for record in run),
                    *(_figure(run, column) for column in columns),
                    f"{fmean(record.training['seconds'] for record in run) / 60:.0f}",
                    "; ".join(dict.fromkeys(_machine(record) for record in run)),
                ]
            )
        )
    return "\n".join([*lines, "", *_notes(runs), ""])


def _check_run(run: list[Record]) -> list[Record]:
    first = run[0]
    for other in run[1:]:
        if other.config != first.config:
            raise ValueError(
                f"{first.path} and {other.path} were made with different settings "
                f"({config_difference(first.config, other.config)}): remove the one that is out of date"
            )
        if other.signatures != first.signatures:
            raise ValueError(f"{first.path} and {other.path} were scored differently: they can't be averaged")
    return run


def _figure(run: Sequence[Record], column: Column) -> str:
    values = [figure for record in run if (figure := column.figure(record)) is not None]
    if not values:
        return ""
    if len(values) == 1:
        return f"{values[0]:.2f} (one seed)"
    return f"{fmean(values):.2f} ± {stdev(values):.2f} ({len(values)} seeds)"


def _run_label(record: Record) -> str:
    changes = ", ".join(f"{key}={value}" for key, value in record.overrides.items())
    return f"{record.recipe} with {changes}" if changes else record.recipe


def _machine(record: Record) -> str:
    machine = record.machine
    if machine.get("gpu"):
        count = machine.get("gpus", 1)
        return f"{count} × {machine['gpu']}" if count > 1 else str(machine["gpu"])
    return f"{machine['cpu']}, {machine['threads']} thread{'s' if machine['threads'] != 1 else ''}"


def _notes(runs: Sequence[Sequence[Record]]) -> list[str]:
    notes = []
    if any(len(run) > 1 for run in runs):
        notes.append("± is the sample standard deviation over seeds.")
    signed: dict[tuple[str, str], list[str]] = {}
    for run in runs:
        for metric, signature in run[0].signatures.items():
            signed.setdefault((metric, signature), []).append(_run_label(run[0]))
    headings = {column.metric: column.heading for column in COLUMNS}
    for (metric, signature), names in signed.items():
        others = any(m == metric and s != signature for m, s in signed)
        of = f" of {', '.join(names)}" if others else ""
        notes.append(f"{headings.get(metric, metric)}{of}: `{signature}`.")
    return ["  \n".join(notes)] if notes else []


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
