"""The table of all runs: one row per run, the mean over its seeds; `rskip report`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from statistics import fmean
from typing import Any

from rskip.records import Record, check_run
from rskip.records.tables import markdown_table, markdown_text, summarise
from rskip.tasks import Column, dataset_of_record, task_of_record, tasks

NO_RECORDS = "No run records yet.\n"


def overview(records: Iterable[Record]) -> str:
    """The tables of all runs, one per dataset that they were scored on."""
    by_data: dict[str, list[Record]] = {}
    for record in records:
        by_data.setdefault(dataset_of_record(record), []).append(record)
    parts = [f"## {markdown_text(name)}\n\n{results_table(by_data[name])}" for name in sorted(by_data)]
    return "\n".join(parts) or NO_RECORDS


def results_table(records: Iterable[Record]) -> str:
    """A table of the runs, with the signatures of its scores below; `NO_RECORDS` if there are no runs.

    A score is the mean ± the sample standard deviation over the run's seeds, or the score of one seed.

    :raises ValueError: a run's records were made with different settings or scorers.
    """
    runs = [list(group) for _, group in groupby(records, key=lambda record: record.run)]
    for run in runs:
        check_run(run)
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


def _figure(run: Sequence[Record], column: Column) -> str:
    values = [record.metrics[column.metric] for record in run if column.metric in record.metrics]
    diverged = sum(record.diverged for record in run)
    said = [f"{diverged} diverged" if len(run) > 1 else "diverged"] if diverged else []
    if values:
        said.insert(0, f"{summarise(values)} ({'one seed' if len(values) == 1 else f'{len(values)} seeds'})")
    return ", ".join(said)


def run_label(record: Record) -> str:
    """The name of the recipe, and the overridden settings."""
    changes = ", ".join(f"{key}={value}" for key, value in record.overrides.items())
    return f"{record.address} with {changes}" if changes else record.address


def machine_label(machine: Mapping[str, Any]) -> str:
    """The GPUs, or the CPU and its threads."""
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
        for key in dict.fromkeys(pair for record in run for pair in record.signatures.items()):
            signed.setdefault(key, []).append(run[0])
    for (metric, signature), firsts in signed.items():
        others = any(m == metric and s != signature for m, s in signed)
        of = f" of {', '.join(map(run_label, firsts))}" if others else ""
        heading = dict(task_of_record(firsts[0]).columns).get(metric, metric)
        notes.append(f"{heading}{of}: `{signature}`.")
    return ["  \n".join(map(markdown_text, notes))] if notes else []
