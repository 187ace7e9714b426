"""The plan of a comparison: measures updates with each connection, and decides how many there are in each run."""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor, nn

from rskip.comparison.options import Options
from rskip.comparison.subjects import EVALUATIONS, Job, Subject, as_written
from rskip.files.state import read_state
from rskip.files.whole import atomic_file
from rskip.machine.device import choose_device
from rskip.machine.ranks import Ranks
from rskip.settings.differences import differences
from rskip.settings.errors import SettingError
from rskip.tasks.training import Start, TrainingRun
from rskip.tasks.training_folder import TrainingFolder

PILOT = 0  # the seed that chooses the learning rates, and is not compared
SLOWER = 1.05  # from this ratio of times on, the baseline also gets the longer time
_RESERVE = 0.9  # of the time, for what a measurement doesn't see
_WARM, _LEAST, _MOST, _SECONDS = 2, 5, 30, 10.0  # updates that are timed, and how long


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """An update with a connection: its time, the memory kept for the backward pass, the model's parameters."""

    seconds: float
    kept_megabytes: float
    parameters: int


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What plan.json holds.

    :param identity: what determines the runs, see `Subject`; `command`: the words that repeat the comparison.
    :param connections: without the baseline.
    :param rates: learning rates, one of which pilot runs choose for each connection.
    :param updates: of each run; `minutes`: the time that decided it, or None.
    """

    name: str
    identity: dict[str, Any]
    command: list[str]
    baseline: str
    connections: list[str]
    rates: list[float]
    seeds: int
    updates: int
    measured: dict[str, Measured]
    evaluation_seconds: float
    minutes: float | None = None

    @property
    def all(self) -> list[str]:
        return [self.baseline, *self.connections]

    def ratio(self, connection: str) -> float:
        """The time of an update, over the baseline's."""
        return self.measured[connection].seconds / self.measured[self.baseline].seconds

    def is_slower(self, connection: str) -> bool:
        """Whether an update takes so much longer, as the table shows it, that the baseline gets the longer time."""
        return round(self.ratio(connection), 2) > SLOWER

    @property
    def longest(self) -> int:
        """The updates of the baseline in the time of the slowest connection."""
        slowest = max(self.all, key=self.ratio)
        longer = max(self.updates + 1, round(self.updates * self.ratio(slowest)))
        return longer if self.is_slower(slowest) else self.updates

    def pilots(self) -> list[Job]:
        """The runs that choose learning rates; none if there is one rate."""
        rates = self.rates if len(self.rates) > 1 else []
        return [Job(each, rate, self.updates, PILOT) for each in self.all for rate in rates]

    def tests(self, rates: Mapping[str, float]) -> list[Job]:
        """The runs that are compared, by seed. `rates`: those chosen; a connection without one has no runs."""
        lengths = [(each, self.updates) for each in self.all]
        if self.longest > self.updates:
            lengths.append((self.baseline, self.longest))
        seeds = range(1, self.seeds + 1)
        return [Job(each, rates[each], count, seed) for seed in seeds for each, count in lengths if each in rates]

    def seconds(self, job: Job) -> float:
        """The expected duration of a run."""
        return job.updates * self.measured[job.connection].seconds + EVALUATIONS * self.evaluation_seconds


def read_plan(output: Path) -> Plan:
    """:raises SettingError: the file is damaged."""
    return read_state(output / "plan.json", Plan, advice="choose another output folder")


def make_plan(
    subject: Subject,
    connections: Sequence[str] | None,
    *,
    options: Options,
    rates: Sequence[float],
    output: Path,
    device: str | None,
    command: Sequence[str],
) -> Plan:
    """A new plan, or the one in the output folder, changed by further connections, rates and seeds.

    :param connections: None: those that the subject recommends, without those that the model can't have.
    :raises SettingError: the folder has another comparison, a connection is unknown or doesn't fit, or the time is too
        short; this says what is needed.
    """
    ranks = Ranks.from_environment()
    with ranks.together():
        if not ranks.agree(repr(subject.identity)):
            advice = "give its DataLoader a generator with a fixed seed"
            expected = "the same batches in the same order"
            raise SettingError("data", "differs between the processes of torchrun", expected=expected, advice=advice)
    before = read_plan(output) if (output / "plan.json").exists() else None
    if before is not None:
        length = "minutes" if options.updates is None else "updates"
        now = {**subject.identity, "baseline": subject.baseline, length: getattr(options, length)}
        there = {**before.identity, "baseline": before.baseline, length: getattr(before, length)}
        if listed := "; ".join(differences(there, now)):
            advice = "repeat its settings, or choose another output folder"
            raise SettingError("output", f"is {output}, which has another comparison ({listed})", advice=advice)
    if connections is not None:
        wanted = list(map(as_written, connections))
    else:
        wanted = list(subject.recommended if before is None else before.connections)
    measured, evaluation = ({}, 0.0) if before is None else (before.measured, before.evaluation_seconds)
    names = dict.fromkeys((subject.baseline, *wanted))
    timed = [each for each in names if each == subject.baseline or each not in measured]
    if before is None or len(timed) > 1:
        found, seconds = measure(subject, timed, rate=rates[0], device=device, optional=connections is None)
        if before is not None:  # the machine may be faster or slower now
            scale = measured[subject.baseline].seconds / found[subject.baseline].seconds
            found = {name: msgspec.structs.replace(each, seconds=scale * each.seconds) for name, each in found.items()}
        measured, evaluation = found | measured, evaluation or seconds
    plan = Plan(
        name=subject.name,
        identity=subject.identity,
        command=list(command),
        baseline=subject.baseline,
        connections=[each for each in dict.fromkeys(wanted) if each != subject.baseline and each in measured],
        rates=sorted({*rates}),
        seeds=options.seeds,
        updates=0 if before is None else before.updates,
        measured=measured,
        evaluation_seconds=evaluation,
        minutes=(None if options.updates else options.minutes) if before is None else before.minutes,
    )
    if not plan.connections:
        raise SettingError("connections", "has none besides the baseline", expected="one or more")
    if before is None:
        plan = msgspec.structs.replace(plan, updates=options.updates or _affordable(plan, options.minutes))
    if ranks.first:
        output.mkdir(parents=True, exist_ok=True)
        with atomic_file(output / "plan.json") as temporary:
            temporary.write_text(json.dumps(msgspec.to_builtins(plan), indent=1) + "\n")
    ranks.wait()
    return plan


def _affordable(plan: Plan, minutes: float) -> int:
    """The updates of each run that fit into the time.

    :raises SettingError: not even one of each does.
    """

    def needed(updates: int) -> float:
        planned = msgspec.structs.replace(plan, updates=updates)
        jobs = [*planned.pilots(), *planned.tests(dict.fromkeys(planned.all, 1.0))]
        return sum(map(planned.seconds, jobs)) / _RESERVE / 60

    if needed(1) > minutes:
        advice = "give more minutes, fewer connections or seeds, or a smaller model"
        raise SettingError.of_value("minutes", minutes, f"{needed(1):.2g} or more", advice=advice)
    each = (needed(10**6) - needed(1)) / (10**6 - 1)
    return 1 + int((minutes - needed(1)) / each)


def measure(
    subject: Subject, connections: Sequence[str], *, rate: float, device: str | None, optional: bool = False
) -> tuple[dict[str, Measured], float]:
    """Times updates with all connections in turns, and an evaluation. Ranks agree on the slowest one's times.

    :param optional: leave out connections that the model can't have, except the first.
    :returns: the medians, and seconds per evaluation.
    """
    ranks, runs = Ranks.from_environment(), dict[str, TrainingRun[Any]]()
    place = choose_device(device, ranks)

    def slowest(seconds: float) -> float:
        return float(ranks.max(torch.tensor(seconds, dtype=torch.float64)))

    with tempfile.TemporaryDirectory() as folder:
        if ranks.first:
            print(f"timing updates with {', '.join(connections)}", flush=True)
        for connection in connections:
            settings, files = subject.settings(Job(connection, rate, 1000, PILOT)), TrainingFolder(Path(folder))
            try:
                runs[connection] = subject.begin(
                    Start(settings=settings, files=files, seed=PILOT, device=place, ranks=ranks)
                )
            except SettingError as error:
                if not optional or not runs:
                    raise
                print(f"without {connection}: {error}", flush=True)
        for run in runs.values():
            run.average_gradients()
        kept = {name: _kept_megabytes(run) for name, run in runs.items()}
        times: dict[str, list[float]] = {name: [] for name in runs}
        began = time.monotonic()
        for number in range(_WARM + _MOST):
            for name, run in runs.items():
                times[name].append(_seconds(run.step, place))
            if slowest(time.monotonic() - began) > _SECONDS and number >= _WARM + _LEAST:
                break
        first = next(iter(runs.values()))
        evaluation = slowest(_seconds(lambda: first.point(first, [0.0], 0.0), place))
    found = {
        name: Measured(
            seconds=slowest(statistics.median(times[name][_WARM:])),
            kept_megabytes=round(kept[name], 3),
            parameters=sum(each.numel() for each in run.model.parameters()),
        )
        for name, run in runs.items()
    }
    return found, evaluation


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    began = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - began


def _kept_megabytes(run: TrainingRun[Any]) -> float:
    inputs, targets, _ = run.batch(0)
    return kept_bytes(run.model, lambda: run.sums(run.model, inputs, targets)[0]) / 1e6


def kept_bytes(module: nn.Module, forward: Callable[[], Tensor]) -> int:
    """The bytes that the forward pass saves for the backward pass, without parameters. Shared memory counts once."""
    own = {each.untyped_storage().data_ptr() for each in (*module.parameters(), *module.buffers())}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor.detach()  # otherwise a node that keeps its own output would never be freed

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        outputs = forward()  # keeps the tensors alive, so that addresses are unique
    total = sum(kept.values())
    del outputs
    return total
