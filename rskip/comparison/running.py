"""The runs of a comparison. Finished ones stay in the output folder as run records, and are not repeated."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import msgspec

from rskip.checkpoint.config_file import WEIGHTS
from rskip.comparison.plan import PILOT, Plan, read_plan
from rskip.comparison.subjects import OWN, Job, Subject
from rskip.connections import parse_connection
from rskip.files.checksum import sha256_file
from rskip.machine.environment import describe_environment
from rskip.machine.ranks import Ranks
from rskip.records import Record, read_record
from rskip.settings.differences import differences
from rskip.settings.errors import SettingError
from rskip.tasks.training import Diverged, train
from rskip.tasks.training_folder import Tracker, TrainingFolder, read_points


@dataclass(frozen=True, kw_only=True)
class Runs:
    """The runs of a plan: OUTPUT/runs/CONNECTION_RATE_UPDATES/SEED.json."""

    plan: Plan
    output: Path

    def path(self, job: Job) -> Path:
        """A run's record."""
        slug = OWN if job.connection == OWN else parse_connection(job.connection).slug
        return self.output / "runs" / f"{slug}_lr{job.rate:g}_{job.updates}" / f"{job.seed}.json"

    def folder(self, job: Job) -> Path:
        """Where a run trains until its record is written."""
        return self.path(job).with_suffix("")

    def read(self, job: Job) -> Record | None:
        """A finished run."""
        return read_record(path) if (path := self.path(job)).exists() else None

    def rates(self) -> dict[str, float]:
        """The learning rate of each connection: of its pilot runs with the lowest held-out loss, if one has a loss."""
        if len(self.plan.rates) == 1:
            return dict.fromkeys(self.plan.all, self.plan.rates[0])
        found: dict[str, dict[float, float]] = {}
        for job in self.plan.pilots():
            if (record := self.read(job)) is not None and not record.diverged:
                found.setdefault(job.connection, {})[job.rate] = record.metrics["loss"]
        return {connection: min(losses, key=losses.__getitem__) for connection, losses in found.items()}

    def jobs(self) -> list[Job]:
        """All runs whose learning rates are known."""
        return [*self.plan.pilots(), *self.plan.tests(self.rates())]

    def stages(self) -> Iterator[list[Job]]:
        """The missing pilot runs, then the missing runs that are compared, at the rates that the pilots chose."""
        for jobs in (self.plan.pilots, lambda: self.plan.tests(self.rates())):
            yield [job for job in jobs() if not self.path(job).exists()]

    def left(self) -> str:
        """How many runs are left, and when they will have ended."""
        rates = dict.fromkeys(self.plan.all, self.plan.rates[0]) | self.rates()
        jobs = [*self.plan.pilots(), *self.plan.tests(rates)]
        missing = [job for job in jobs if not self.path(job).exists()]
        end = datetime.now() + timedelta(seconds=sum(map(self.plan.seconds, missing)))
        return f"run {len(jobs) - len(missing) + 1} of {len(jobs)}, all end at about {end:%H:%M}"


def do_runs(
    subject: Subject,
    runs: Runs,
    *,
    device: str | None,
    tracker: Tracker | None = None,
    after: Callable[[], None] = lambda: None,
) -> None:
    """Does the missing runs, one after the other.

    :param after: called after each run that is compared, in the first rank.
    :raises Interrupted: SIGTERM or SIGINT stopped a run, which was saved.
    """
    first = Ranks.from_environment().first
    for stage in runs.stages():
        for job in stage:
            if first:
                print(f"\n{describe(job)}: {runs.left()}", flush=True)
            do_run(subject, job, runs, device=device, tracker=tracker)
            if first and job.seed != PILOT:
                after()


def describe(job: Job) -> str:
    """A run in words."""
    what = "pilot" if job.seed == PILOT else f"seed {job.seed}"
    return f"{job.connection}, lr {job.rate:g}, {job.updates:,} updates, {what}"


def outcome(record: Record | None) -> str:
    """The result of a finished run in words."""
    if record is None:
        return "done"  # NFS shows its record later
    return "diverged" if record.diverged else f"held-out loss {record.metrics['loss']:.4f}"


def do_run(subject: Subject, job: Job, runs: Runs, *, device: str | None, tracker: Tracker | None = None) -> None:
    """Does one run, from its checkpoint if there is one, and writes its record. A diverged one has no loss."""
    ranks, path, folder, settings = Ranks.from_environment(), runs.path(job), runs.folder(job), subject.settings(job)
    losses, sha256, points, parameters, seconds, pieces = dict[str, float](), None, list[Any](), 0, 0.0, 1
    try:
        run = train(
            subject.begin, settings, folder=folder, apart=None, seed=job.seed, device=device, tracker=tracker
        )  # fmt: skip
    except Diverged as error:
        if ranks.first:
            print(error, flush=True)
            if (curve := TrainingFolder(folder).curve).exists():
                points = read_points(curve, dict[str, Any])
    else:
        points, seconds, pieces = run.points, run.seconds, run.pieces
        parameters = sum(each.numel() for each in run.model.parameters())
        if ranks.first:
            losses, sha256 = {"loss": points[-1].valid_loss}, sha256_file(folder / WEIGHTS)
    if ranks.first:
        Record(
            recipe="compare",
            variant=path.parent.name,
            kind="comparison",
            seed=job.seed,
            config={**subject.identity, **settings.to_dict()},
            overrides={},
            metrics=losses,
            signatures={},
            curve=msgspec.to_builtins(points),
            training={"seconds": seconds, "pieces": pieces, "processes": ranks.count},
            parameters=parameters,
            checkpoint_sha256=sha256,
            data={},
            date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            **describe_environment(),
        ).write(path)
        if tracker is None:
            shutil.rmtree(folder)  # the record has its result
        else:
            (folder / WEIGHTS).unlink(missing_ok=True)
            TrainingFolder(folder).checkpoint.unlink(missing_ok=True)
    ranks.wait()


def do_named_run(
    subject: Subject, path: str, output: Path, *, device: str | None, tracker: Tracker | None
) -> None:  # fmt: skip
    """The run of the plan in the output folder whose record has this path.

    :raises SettingError: the data are not the plan's.
    """
    runs = Runs(plan=read_plan(output), output=output)
    if differences(runs.plan.identity, subject.identity):
        advice = "give the same data, in the same order, each time"
        raise SettingError("data", "differs from that of the plan", advice=advice)
    job = next(job for job in runs.jobs() if str(runs.path(job)) == path)
    do_run(subject, job, runs, device=device, tracker=tracker)


def of_length(runs: Sequence[tuple[Job, Record]], connection: str, updates: int) -> list[tuple[Job, Record]]:
    """The compared runs of a connection with so many updates that did not diverge."""
    return [
        (job, record)
        for job, record in runs
        if (job.connection, job.updates) == (connection, updates) and job.seed != PILOT and not record.diverged
    ]
