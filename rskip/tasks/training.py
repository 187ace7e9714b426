"""The training loop of image models and language models.

`train` gives a task a `Start`. The task makes a `TrainingRun` of it: a model, its optimiser, batches, losses, a
learning rate and an evaluation. `train` runs it to the last iterate, in any number of sessions and processes. Devices,
precision, clipping, checkpoints, signals, the curve, probes and trackers are the same for all tasks.
"""

from __future__ import annotations

import io
import json
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Generic

import msgspec
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from rskip.checkpoint import Checkpoint, write_model
from rskip.connections.norms import at_least_float32
from rskip.files.state import as_state
from rskip.files.whole import atomic_file, check_apart
from rskip.machine.device import choose_device, gpu_of_its_own, set_gpu_arithmetic
from rskip.machine.memory import keep_freed_memory
from rskip.machine.ranks import Ranks
from rskip.machine.terminal import duration
from rskip.tasks.training_folder import (
    AGAIN,
    Point,
    Tracker,
    TrainingCheckpoint,
    TrainingFolder,
    check_same,
    read_checkpoint,
    tracking,
)

CHECK_EVERY = 100  # iterations between two checks of the loss, since a check waits for the GPU
SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Diverged(ValueError):
    """Raised if the loss or a weight is not finite. Earlier checkpoints stay."""


class OutputsNotFinite(ValueError):
    """Raised if the model's outputs are infinite or NaN, because its training diverged."""

    def __init__(self) -> None:
        super().__init__("the outputs of the model are not finite: its training diverged")


class Interrupted(Exception):
    """Raised if a signal stopped a training, which was saved.

    :param status: the exit status for the shell: 143 for SIGTERM, 130 for SIGINT.
    """

    def __init__(self, number: int, *, iteration: int, checkpoint: Path) -> None:
        super().__init__(
            f"stopped by {signal.Signals(number).name} after {iteration:,} iterations, saved in {checkpoint}: "
            "repeat the command to resume"
        )
        self.status = 128 + number


# Probes a training before every iteration, in all processes, without changing it or drawing random numbers:
# observer(iteration, model, loss_of, count=count), with the number of the next iteration from 1; the model, to be
# copied before a forward pass, which changes its running statistics; and a function that returns a copy's summed loss
# over this process's part of the batch, which has `count` images or tokens.
Observer = Callable[..., None]


@dataclass(frozen=True, kw_only=True)
class Start:
    """What a training begins with.

    :param settings: the task's settings: `to_dict()`, `precision`, `connection`, `batch_size`, `clip_norm` and
        `save_every` are used here.
    :param files: the output folder, locked.
    :param seed: random seed of the initial weights, the batches and all other random numbers; 0 to 2⁶⁴ - 1.
    :param observer: probes the training without changing its result.
    :param notes: lines for the terminal before the first iteration.
    """

    settings: Any
    files: TrainingFolder
    seed: int
    device: torch.device
    ranks: Ranks = Ranks()
    observer: Observer | None = None
    notes: Sequence[str] = ()


def train(
    build: Callable[[Start], TrainingRun[Point]],
    settings: Any,
    *,
    folder: Path,
    apart: Path | None,
    seed: int,
    device: str | None = None,
    tracker: Tracker | None = None,
    observer: Observer | None = None,
    notes: Sequence[str] = (),
) -> TrainingRun[Point]:
    """Trains to the end, from the start or from the folder's checkpoint.pt.

    Under torchrun the processes share every batch. On a CPU an interrupted and resumed training gives the same bytes as
    an uninterrupted one. It seeds torch's random numbers.

    :param build: makes the training run in the locked folder, on the device.
    :param settings, seed, observer, notes: see `Start`.
    :param folder: the output folder, see `TrainingFolder`. After the end it also has the last iterate.
    :param apart: the user's data, which the folder must not be in.
    :param device: "cpu", "cuda" or "cuda:1"; None: a GPU if available.
    :param tracker: what also gets the curve: TensorBoard or Weights & Biases (offline unless WANDB_MODE says
        otherwise).
    :returns: the finished run, with `points`, `iteration`, `seconds` and `name`.
    :raises Interrupted: SIGTERM or SIGINT stopped the training, which was saved.
    :raises Diverged: the loss or a weight is not finite. Earlier checkpoints stay.
    :raises ValueError: an argument is wrong, the checkpoint has other settings, or the folder is in use.
    :raises OSError: the data can't be read.
    """
    ranks, files = Ranks.from_environment(), TrainingFolder(folder)
    with process_group(ranks, device), ExitStack() as stack:
        with ranks.together():
            if not 0 <= seed < 2**64:
                raise ValueError(f"the seed is {seed}: expected 0 to {2**64 - 1}")
            if apart is not None:
                check_apart(folder, apart)
            place = choose_device(device, ranks)
            set_gpu_arithmetic(place, training=True, same_shapes=True)
            if place.type == "cpu":
                keep_freed_memory()
            if ranks.first:
                stack.enter_context(files.lock())
        with ranks.together():
            checkpoint = read_checkpoint(files.checkpoint)
            if checkpoint is not None:
                now = {**settings.to_dict(), "seed": seed, "processes": ranks.count}
                of_run = {"seed": checkpoint.seed, "processes": checkpoint.processes}
                check_same(files.checkpoint, {**checkpoint.settings, **of_run}, now)
        with ranks.together():
            found = torch.tensor(0 if checkpoint is None else checkpoint.iteration)
            least, most = int(ranks.min(found)), int(ranks.max(found))
            if least != most:
                raise ValueError(
                    f"{files.checkpoint}: one process finds iteration {least:,}, another {most:,}: use a folder that "
                    "all machines share"
                )
        with ranks.together():
            start = Start(
                settings=settings, files=files, seed=seed, device=place, ranks=ranks, observer=observer, notes=notes
            )
            run = build(start)
            if checkpoint is not None:
                run.restore(checkpoint)
            run.begin_files(tracker, stack)
        run.to_the_end()
        return run


@dataclass(kw_only=True, eq=False)
class TrainingRun(Generic[Point]):
    """A training's state, and its steps.

    :param model: on the device, in training mode. `trained`: as training calls it, such as compiled; None: the model.
    :param iterations: length of the training.
    :param batch: returns inputs and targets of this rank's part of an iteration's batch, and the number of examples
        (images or tokens) of all ranks. It depends on seed and iteration only.
    :param losses: returns sums over outputs and targets: the loss first, then other measures for the curve.
    :param learning_rate: returns an iteration's learning rate. All iterations count from 0.
    :param point_every: iterations between two points of the curve. One is also due at the end.
    :param point: evaluates the model and returns a point of the curve. Its arguments are this run, the means of
        `losses` over the examples since the last point, and the number of examples per second.
    :param line: the line on the terminal for a point.
    :param data: what identifies the data, for a checkpoint.
    :param config: the content of the finished model's config.json.
    :param more_files: writes the model's further files into the folder, before its weights and config.json.
    :param about: additional content of run.json.
    :param notes: lines for the terminal before the first iteration, after those of `start`.
    :param name: name of the model and its data, such as `PreAct-ResNet-20, 2rskip+ln, cifar10`.
    :param evaluated_on: the data of the curve's evaluations: "test" or "validation".

    iteration, points: the number of completed iterations, and the learning curve, in the first process.
    """

    start: Start
    model: nn.Module
    trained: nn.Module | None = None
    optimiser: torch.optim.Optimizer
    iterations: int
    batch: Callable[[int], tuple[Tensor, Tensor, int]]
    losses: Callable[[Tensor, Tensor], tuple[Tensor, ...]]
    learning_rate: Callable[[int], float]
    point_every: int
    point_type: type[Point]
    point: Callable[[TrainingRun[Point], list[float], float], Point]
    line: Callable[[Point], str]
    data: dict[str, Any]
    config: dict[str, Any]
    more_files: Callable[[Path], None] = lambda folder: None
    about: dict[str, Any]
    notes: Sequence[str] = ()
    name: str
    evaluated_on: str
    iteration: int = field(default=0, init=False)
    points: list[Point] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.settings, self.files, self.ranks = self.start.settings, self.start.files, self.start.ranks
        self.device, self.trained = self.start.device, self.trained or self.model
        # of this rank, since the last point
        self._sums = torch.zeros(1, dtype=torch.float64, device=self.device)  # as many as `losses` returns, later
        self._count = 0  # of all ranks, since then
        self._saved = 0  # the iteration of the last checkpoint
        self._earlier_sessions: list[dict[str, Any]] = []
        self._session = {"from": 0, "device": device_name(self.device), "torch": str(torch.__version__)}
        self._session_began = self._point_began = time.monotonic()
        self._track: Callable[[Point], None] | None = None

    def restore(self, checkpoint: TrainingCheckpoint) -> None:
        """Restores the training's state from an earlier session's checkpoint.

        :raises ValueError: the checkpoint belongs to other data.
        """
        check_same(self.files.checkpoint, checkpoint.data, self.data)
        self.model.load_state_dict(checkpoint.model)
        groups = self.optimiser.state_dict()["param_groups"]  # the settings, not the checkpoint, determine the update
        self.optimiser.load_state_dict({"state": checkpoint.optimiser["state"], "param_groups": groups})
        kind: Any = list[self.point_type]  # type: ignore[name-defined]
        self.points = as_state(checkpoint.curve, kind, source=str(self.files.checkpoint), advice=AGAIN)
        self.iteration = self._saved = checkpoint.iteration
        self._earlier_sessions, self._session["from"] = checkpoint.sessions, checkpoint.iteration
        self._count, self._point_began = checkpoint.count, time.monotonic() - checkpoint.seconds
        self._sums = torch.tensor(checkpoint.sums, dtype=torch.float64).to(self.device)
        if not self.ranks.first:  # whose sums are those of all ranks
            self._sums.zero_()

    def begin_files(self, tracker: Tracker | None, stack: ExitStack) -> None:
        """Writes run.json and the curve so far, in the first rank only.

        :param stack: closes the tracker.
        :raises ValueError: the tracker is not installed.
        """
        if not self.ranks.first:
            return
        content = {
            "settings": self.settings.to_dict(), "seed": self.start.seed, "processes": self.ranks.count,
            "parameters": sum(parameter.numel() for parameter in self.model.parameters()), **self.about,
        }  # fmt: skip
        with atomic_file(self.files.settings) as temporary:
            temporary.write_text(json.dumps(content, indent=2) + "\n")
        self.files.write_curve(self.points)
        if tracker is not None:
            last: Any = self.points[-1] if self.points else None
            after = last.iteration if last else 0
            name = f"{self.settings.connection}, lr {self.settings.lr:g}, seed {self.start.seed}"
            tracked = tracking(tracker, self.files.path, name=name, config=content, after=after)
            self._track = stack.enter_context(tracked)

    def average_gradients(self) -> None:
        """With several ranks, averages gradients over them from now on. Waits for all ranks."""
        assert self.trained is not None
        if self.ranks.count > 1:
            gpu = [self.device] if self.device.type == "cuda" else None
            self.trained = DistributedDataParallel(self.trained, device_ids=gpu, gradient_as_bucket_view=True)

    def to_the_end(self) -> None:
        """Does all iterations, with a progress bar, or a line each minute without a terminal. Writes the last iterate.

        :raises Interrupted: SIGTERM or SIGINT stopped the training, which was saved.
        :raises Diverged: the loss or a weight is not finite.
        """
        from rskip.machine.progress import Progress  # loading a model doesn't need it

        self.average_gradients()
        shown, began = self.ranks.first, time.monotonic()
        self._point_began += began - self._session_began  # what came before, such as compiling, doesn't count
        self._session_began = began
        with (
            Progress(
                "training", total=self.iterations, done=self.iteration, unit=" iterations", log=60, beginning=False,
                shown=shown,
            ) as progress,
            stop_signals(self.ranks) as received,
        ):  # fmt: skip
            for note in (*self.start.notes, *self.notes) if shown else ():
                progress.note(note)
            while True:
                if number := received():
                    self.save()
                    interrupted = Interrupted(number, iteration=self.iteration, checkpoint=self.files.checkpoint)
                    if not self.ranks.first:
                        self.ranks.leave(interrupted.status)
                    raise interrupted
                finished = self.iteration >= self.iterations
                point_due = self._count > 0 and (finished or self.iteration % self.point_every == 0)
                # one is always saved before a point, since its evaluation may take long
                if self.iteration > self._saved and (point_due or self.iteration % self.settings.save_every == 0):
                    self.save()
                elif self.iteration % CHECK_EVERY == 0:
                    self.check()
                if point_due:
                    self.add_point()
                    if shown:
                        left = self.seconds / self.iteration * (self.iterations - self.iteration)
                        ends = "" if finished else f"   {duration(left)} left"
                        progress.note(f"{self.line(self.points[-1])}{ends}")
                    if finished:
                        self.save()
                if finished:
                    break
                self.step()
                progress.update()
            with self.ranks.together():
                if shown:
                    self.files.check_lock()
                    self.more_files(self.files.path)
                    write_model(self.files.path, Checkpoint(model=self._weights(), config=self.config))

    def step(self) -> None:
        """Does one iteration, with the gradient of the mean loss over the batch of all ranks, and awaits no GPU."""
        for group in self.optimiser.param_groups:
            group["lr"] = self.learning_rate(self.iteration)
        inputs, targets, count = self.batch(self.iteration)
        if (observer := self.start.observer) is not None:
            probed = partial(self.sums, inputs=inputs, targets=targets)
            observer(self.iteration + 1, self.model, lambda model: probed(model)[0], count=targets.numel())
        # set for each iteration, so that a resumed training draws the same dropout
        torch.manual_seed(iteration_seed(self.start.seed, self.iteration, 1 + self.ranks.rank))
        assert self.trained is not None
        sums = self.sums(self.trained, inputs, targets)
        self.optimiser.zero_grad()
        # DistributedDataParallel divides the sum over ranks by their number
        (sums[0] * (self.ranks.count / count)).backward()
        if self.settings.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip_norm)
        self.optimiser.step()
        self._sums = self._sums + torch.stack([each.detach().double() for each in sums])
        self._count += count
        self.iteration += 1

    def sums(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
        """The sums of `losses` over this rank's examples, computed in the precision of the settings."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.settings.precision == "bfloat16"):
            outputs = model(inputs)
        return self.losses(at_least_float32(outputs), targets)

    def check(self) -> None:
        """:raises Diverged: on all ranks: a loss since the last point, a weight or a statistic is not finite."""
        floats = [tensor.detach() for tensor in self.model.state_dict().values() if tensor.is_floating_point()]
        largest = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(floats, math.inf)), math.inf)
        loss, weight = torch.stack([self.ranks.sum(self._sums)[0], self.ranks.sum(largest.double())]).tolist()
        if not math.isfinite(loss):  # on all ranks alike, which all raise
            raise self._diverged("the loss")
        if not math.isfinite(weight):
            raise self._diverged("a weight or statistic")

    def _diverged(self, what: str) -> Diverged:
        """The error, which suggests what to try."""
        lr, connection = self.learning_rate(max(0, self.iteration - 1)), self.settings.connection
        kept = f"{self.files.checkpoint} holds iteration {self._saved:,}" if self._saved else "no checkpoint yet"
        return Diverged(
            f"{what} is not finite after {self.iteration:,} iterations (lr {lr:g}, connection {connection}): try a "
            f"lower lr, clip_norm, or a connection with a normalisation, such as 2rskip+ln; {kept}"
        )

    def save(self) -> None:
        """Writes the checkpoint.

        :raises Diverged: see `check`. Then nothing is written.
        """
        self.check()
        sums = self.ranks.sum(self._sums).tolist()
        with self.ranks.together():
            if self.ranks.first:
                state: dict[str, Any] = self.optimiser.state_dict()
                state["state"] = {
                    number: {name: value.detach().cpu() for name, value in each.items()}
                    for number, each in state["state"].items()
                }
                checkpoint = TrainingCheckpoint(
                    settings=self.settings.to_dict(),
                    seed=self.start.seed,
                    processes=self.ranks.count,
                    data=self.data,
                    iteration=self.iteration,
                    iterations=self.iterations,
                    model=self._weights(),
                    optimiser=state,
                    config=self.config,
                    sums=sums,
                    count=self._count,
                    seconds=time.monotonic() - self._point_began,
                    curve=msgspec.to_builtins(self.points),
                    sessions=self._sessions(),
                )
                self.files.check_lock()
                memory = io.BytesIO()  # on a full disk, torch.save would raise a RuntimeError about its archive
                torch.save(vars(checkpoint), memory)
                with atomic_file(self.files.checkpoint) as temporary:
                    temporary.write_bytes(memory.getbuffer())
        self._saved = self.iteration

    def _weights(self) -> dict[str, Tensor]:
        return {name: tensor.detach().cpu().contiguous() for name, tensor in self.model.state_dict().items()}

    def add_point(self) -> None:
        """Adds a point to the curve, in the first rank only.

        :raises Diverged: on all ranks: the model's outputs for the evaluation are not finite.
        """
        means = self.means()
        rate = self._count / (time.monotonic() - self._point_began)
        finite = True
        with self.ranks.together():
            if self.ranks.first:
                try:
                    self.points.append(self.point(self, means, rate))
                except OutputsNotFinite:
                    finite = False
                else:
                    self.files.write_curve(self.points)
                    if self._track is not None:
                        self._track(self.points[-1])
        if not self.ranks.min(torch.tensor(int(finite))):
            raise self._diverged(f"the {self.evaluated_on} loss")
        self.begin_point()

    def means(self) -> list[float]:
        """The means of `losses` over the examples of all ranks since the last point."""
        return [each / self._count for each in self.ranks.sum(self._sums).tolist()]

    def begin_point(self) -> None:
        """Begins the means anew."""
        self._sums.zero_()
        self._count = 0
        self._point_began = time.monotonic()

    @property
    def lr(self) -> float:
        """The learning rate of the last iteration."""
        return self.learning_rate(self.iteration - 1)

    @property
    def seconds(self) -> float:
        """Duration of all sessions so far."""
        return sum(session["seconds"] for session in self._sessions())

    @property
    def pieces(self) -> int:
        """The number of sessions so far."""
        return len(self._earlier_sessions) + 1

    def _sessions(self) -> list[dict[str, Any]]:
        return [*self._earlier_sessions, {**self._session, "seconds": time.monotonic() - self._session_began}]


def iteration_seed(seed: int, iteration: int, rank: int = 0) -> int:
    """A seed of 63 bits for the random numbers of an iteration, mixed as in SplitMix64."""
    z = seed * 0x9E3779B97F4A7C15 + iteration * 0xD1B54A32D192ED03 + rank * 0x8CB92BA72F3D8DD7
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z = ((z ^ ((z % 2**64) >> shift)) * factor) % 2**64
    return (z ^ (z >> 31)) >> 1


def device_name(device: torch.device) -> str:
    """`cpu`, or the GPU's name."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def process_group(ranks: Ranks, device: str | None) -> AbstractContextManager[None]:
    """Connects the ranks within the block: with gloo on CPUs, with nccl on GPUs.

    :param device: the argument of `choose_device`, which checks it later.
    :raises ValueError: another rank stopped.
    """
    gpus = device != "cpu" and torch.cuda.is_available()
    gpu = gpu_of_its_own(ranks) if gpus and device in (None, "cuda") else None
    backend = "cpu:gloo,cuda:nccl" if gpus else "gloo"
    return ranks.process_group(backend, device=gpu, advice="; repeat the command to resume from the last checkpoint")


@contextmanager
def stop_signals(ranks: Ranks) -> Iterator[Callable[[], int]]:
    """Notes signals within the block, instead of ending the process.

    A second signal ends a single process. With several processes it does not, since torchrun forwards its signals, so
    each process receives a Ctrl-C twice.

    :returns: a function that returns the number of a signal that any rank received, or 0, the same on all ranks.
    """
    noted = 0
    before: dict[int, Any] = {}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def note(number: int, _: FrameType | None) -> None:
        nonlocal noted
        noted = number
        if ranks.count == 1:
            restore()

    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            before[number] = signal.signal(number, note)
    try:
        yield lambda: noted if ranks.count == 1 else int(ranks.max(torch.tensor(noted)))
    finally:
        restore()


