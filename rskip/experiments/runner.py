"""Runs the variants of a recipe, with one run record per seed."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from rskip.experiments.recipe import Recipe, written_path
from rskip.files.checksum import sha256_file
from rskip.files.folder_lock import FolderLock
from rskip.files.whole import atomic_file
from rskip.machine.environment import gpus_to_use
from rskip.machine.terminal import columns
from rskip.records import RESULTS, Record, read_record
from rskip.settings.check import convert
from rskip.settings.user_dir import suggested_command
from rskip.tasks.process import TrainingDiverged
from rskip.tasks.run import Run, earlier_environments, trained_in
from rskip.tasks.task import Outcome

_Seed = Annotated[int, Meta(ge=0, lt=2**32)]
_ADVICE = "; to train it yourself, copy the recipe without its line `results:`"  # for records under version control


def run_recipes(
    recipes: Sequence[Recipe], *, seeds: Sequence[int], mirror: str | None = None, gpus: int | None = None
) -> list[Record]:
    """Runs each recipe once per seed, in the current folder. Returns the run records in that order.

    A finished run is not repeated; a stopped run is resumed.

    :param gpus: number of GPUs per run, 0 for the CPU; None: one if available.
    :raises ValueError, FileNotFoundError: a setting or file is wrong.
    :raises CommandFailed: a training failed.
    """
    runs = plan_runs(recipes, seeds=seeds, mirror=mirror, gpus=gpus_to_use(gpus))
    check_runs([(recipe, run) for recipe, run in runs if not recipe.record_path(run.seed).exists()])
    records = [run_seed(recipe, run) for recipe, run in runs]
    recipe, run = runs[-1]
    print(next_steps(recipe, recipe.task.work().artifacts(run)), flush=True)
    return records


def check_runs(runs: Sequence[tuple[Recipe, Run[Any]]]) -> None:
    """Checks, before any work, whether the runs of a file are possible here.

    :raises ValueError: one is not, for example because the mirror lacks the data, or fairseq refuses a flag.
    """
    if runs:
        runs[0][0].task.work().check([run for _, run in runs])


def plan_runs(
    recipes: Sequence[Recipe], *, seeds: Sequence[int], mirror: str | None, gpus: int
) -> list[tuple[Recipe, Run[Any]]]:
    """Every recipe with each seed, ordered by seed.

    :raises SettingError: a seed is out of range.
    """
    for seed in seeds:
        convert(seed, _Seed, name="seeds")
    return [
        (
            recipe,
            Run(
                name=recipe.run,
                seed=seed,
                settings=recipe.settings,
                mirror=mirror,
                gpus=gpus,
                probe=recipe.own.probe,
                runs=Path(recipe.own.runs),
            ),
        )
        for seed in seeds
        for recipe in recipes
    ]


def missing_runs(
    recipes: Sequence[Recipe], *, seeds: Sequence[int], mirror: str | None = None, gpus: int = 0
) -> list[tuple[Recipe, Run[Any]]]:
    """The runs of `plan_runs` without a run record.

    :raises ValueError: a run record has other settings.
    """
    runs = plan_runs(recipes, seeds=seeds, mirror=mirror, gpus=gpus)
    for recipe, run in runs:
        if (path := recipe.record_path(run.seed)).exists():
            recipe.check_record(read_record(path))
    return [(recipe, run) for recipe, run in runs if not recipe.record_path(run.seed).exists()]


def run_words(
    recipe: Recipe, seed: int, *, overrides: Sequence[str] = (), mirror: str | None = None, gpus: int | None = None
) -> list[str]:
    """The command of one run.

    :param overrides: the overrides of the loaded recipe.
    """
    return [
        *("rskip", "run", str(recipe.path)),
        *(["--variants", recipe.variant] if recipe.variant is not None else []),
        *("--seeds", str(seed)),
        *(["--set", *overrides] if overrides else []),
        *(["--gpus", str(gpus)] if gpus is not None else []),
        *(["--mirror", mirror] if mirror is not None else []),
    ]


def run_seed(recipe: Recipe, run: Run[Any]) -> Record:
    """Trains and scores a run, unless it has a run record. Writes the run record and prints the result.

    :raises LockLost: another process has taken over the run; this one stops writing.
    """
    if (record := _record_there(recipe, run)) is None:
        with run.folder.lock() as lock:
            record = _record_there(recipe, run)  # if this process waited for another
            if record is None:
                record = _train_and_score(recipe, dataclasses.replace(run, lock=lock), lock)
    print(summary(record, recipe), flush=True)
    if recipe.own.show and (outputs := recipe.task.work().sample_outputs(run, recipe.own.show)):
        print(outputs, flush=True)
    return record


def _record_there(recipe: Recipe, run: Run[Any]) -> Record | None:
    """:raises ValueError: the run record has other settings."""
    path = recipe.record_path(run.seed)
    if not path.exists():
        return None
    record = read_record(path)
    recipe.check_record(record)
    print(f"{path} exists: skipping this run{_ADVICE if recipe.own.results != str(RESULTS) else ''}")
    return record


def _train_and_score(recipe: Recipe, run: Run[Any], lock: FolderLock) -> Record:
    run.folder.bind(recipe.config, given=recipe.written)
    work = recipe.task.work()
    try:
        work.train(run)
    except TrainingDiverged as error:
        print(error, flush=True)
    lock.check()
    outcome = work.score(run)
    record = make_record(recipe, run, outcome)
    lock.check()
    if run.folder.probe.exists():
        with atomic_file(record.path.with_suffix(".probe.jsonl")) as temporary:
            shutil.copyfile(run.folder.probe, temporary)
    record.write(record.path)
    return record


def make_record(recipe: Recipe, run: Run[Any], outcome: Outcome) -> Record:
    """Makes the run record of a scored run, or one without metrics if the run diverged."""
    sessions = run.folder.sessions()
    last = sessions[-1]
    training = {"seconds": outcome.training["seconds"], "pieces": len(sessions), "precision": trained_in(sessions)}
    if earlier := earlier_environments(sessions):
        training["earlier"] = earlier
    return Record(
        recipe=recipe.path.stem,
        variant=recipe.variant,
        kind=recipe.task.name,
        seed=run.seed,
        config=recipe.config,
        overrides=dict(recipe.overrides),
        metrics=outcome.metrics,
        signatures=outcome.signatures,
        curve=outcome.curve,
        training={**training, **outcome.training},
        parameters=outcome.parameters,
        checkpoint_sha256=sha256_file(recipe.task.work().scored_file(run)) if outcome.metrics else None,
        data=outcome.data,
        git=last["git"],
        packages=last["packages"],
        machine=last["machine"],
        date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        path=recipe.record_path(run.seed),
    )


def print_commands(
    recipes: Sequence[Recipe], *, seeds: Sequence[int], mirror: str | None = None, gpus: int | None = None
) -> None:
    """Prints the equivalent shell commands of `run_recipes`, one per line.

    :param gpus: number of GPUs, which this machine need not have.
    :raises SettingError: a seed is out of range, or fairseq refuses a flag.
    """
    if gpus is None or gpus < 0:
        gpus = gpus_to_use(gpus)
    runs = plan_runs(recipes, seeds=seeds, mirror=mirror, gpus=gpus)
    check_runs([(recipe, dataclasses.replace(run, mirror=None)) for recipe, run in runs])
    printed = set()
    for recipe, run in runs:
        for command in recipe.task.work().commands(run):
            if (line := suggested_command(*command)) not in printed:  # the data is prepared once
                printed.add(line)
                print(line)


def variants_table(recipes: Sequence[Recipe], *, seeds: Sequence[int]) -> str:
    """One line per variant of a file, with all finished seeds, and those of `seeds` that are missing."""
    lines = []
    descriptions = {recipe.own.description for recipe in recipes}
    width = max(len(recipe.variant or "") for recipe in recipes)
    for recipe in recipes:
        records = recipe.record_path(1).parent.glob("*.json")
        done = sorted(int(path.stem) for path in records if path.stem.isdigit())
        missing = [seed for seed in seeds if seed not in done]
        found = {"done": done, "not run": missing}
        parts = [f"{name}: {', '.join(map(str, each))}" for name, each in found.items() if each]
        description = recipe.own.description if len(descriptions) > 1 else ""
        lines.append(f"  {recipe.variant:<{width}}  seeds {'; '.join(parts)}   {description}".rstrip())
    return "\n".join(lines)


def summary(record: Record, recipe: Recipe) -> str:
    """Lines with the scores of a run record, the expected and published scores, the time, and the record's path."""
    lines = [f"\n{record.run}, seed {record.seed}{': the training diverged' if record.diverged else ''}"]
    expected = recipe.own.expected
    for metric, heading, _ in recipe.task.shown:
        if (figure := record.metrics.get(metric)) is None:
            continue
        line = f"  {heading:<18}{figure:7.2f}"
        if metric in expected:
            line += f"   (expected by the recipe: {expected[metric]:g})"
        lines.append(line)
    lines += [
        f"  {'the paper':<18}{each.figure:7.2f}   ({each.measure}, {each.table}; from the paper, not from this run)"
        for each in recipe.paper
    ]
    line = f"  {'training':<18}{record.training['seconds'] / 60:7.1f} minutes"
    if "minutes" in expected:
        on = f" on {expected['machine']}" if "machine" in expected else ""
        line += f"   (expected by the recipe: {expected['minutes']:g}{on})"
    return "\n".join([*lines, line, f"  {'record':<18}{record.path}"])


def next_steps(recipe: Recipe, artifacts: dict[str, str]) -> str:
    """Lines with the files of a run, and the command of the recipe's table, which leaves out overrides."""
    report = suggested_command("rskip", "report", written_path(recipe.path))
    places = artifacts | ({} if recipe.overrides else {report: "table of this recipe's scores"})
    return "\n".join(["", "see also", columns(list(places.items()), left=(0, 1), indent="  ")])
