"""A training with its own loop: what is the same for all tasks in its steps, checkpoints and sessions."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from rskip.files.torch_file import weights_difference
from rskip.files.whole import atomic_file, naming
from rskip.machine.progress import Progress
from rskip.machine.ranks import Ranks
from rskip.machine.torch_errors import out_of_memory
from rskip.tasks.loop import Interrupted, Observer, StopSignals
from rskip.tasks.loop_folder import LoopCheckpoint, LoopFolder, Session, write_checkpoint, write_curve

CHECK_EVERY = 100  # iterations between two checks of the loss, since a check waits for the GPU

Point = TypeVar("Point")


class LoopRun(ABC, Generic[Point]):
    """A training's state, and its steps. A task's class sets `model`, `optimiser` and `iterations`.

    :param settings: `to_dict()`, `clip_norm` and `save_every` are used here.
    :param files: the output folder.
    :param device_name: the device's name in the sessions of a checkpoint.
    :param observer: probes the training; None: no probe.
    """

    model: nn.Module
    optimiser: torch.optim.Optimizer
    iterations: int

    def __init__(
        self,
        settings: Any,
        *,
        files: LoopFolder,
        seed: int,
        device: torch.device,
        device_name: str,
        ranks: Ranks,
        observer: Observer | None,
    ) -> None:
        self._loop_settings, self.files, self.seed = settings, files, seed
        self.device, self.ranks, self._observer = device, ranks, observer
        self.points: list[Point] = []
        self.iteration = 0
        self._saved = 0  # the iteration of the last checkpoint
        self._earlier_sessions: list[Session] = []
        self._session: dict[str, Any] = {"from": 0, "device": device_name, "torch": str(torch.__version__)}
        self._begin_session()

    def _begin_session(self) -> None:
        """The session's time counts from here."""
        self._session_began = self._point_began = time.monotonic()

    def _distributed(self, model: nn.Module) -> nn.Module:
        """The model as training calls it: with several ranks, with averaged gradients."""
        if self.ranks.count == 1:
            return model
        gpu = [self.device] if self.device.type == "cuda" else None
        return DistributedDataParallel(model, device_ids=gpu, gradient_as_bucket_view=True)

    @abstractmethod
    def learning_rate(self, iteration: int) -> float:
        """The learning rate of an iteration, counted from 0."""

    @property
    @abstractmethod
    def point_due(self) -> bool:
        """Whether the curve gets a point now."""

    @abstractmethod
    def check(self) -> None:
        """:raises Diverged: a loss or a weight is not finite."""

    @abstractmethod
    def add_point(self) -> Point | None:
        """Adds a point to the curve; see the task's class."""

    @abstractmethod
    def finish(self) -> None:
        """Writes the last iterate.

        :raises OSError: the disk is full.
        """

    @abstractmethod
    def _iterate(self) -> None:
        """Probes the training and does one update, without waiting for the device."""

    @abstractmethod
    def _out_of_memory(self) -> ValueError:
        """The error if the device has not enough memory. It suggests what to change."""

    @abstractmethod
    def _sums(self) -> Any:
        """The sums over all ranks since the last point, for a checkpoint. All ranks call it."""

    @abstractmethod
    def _checkpoint(self, sums: Any) -> LoopCheckpoint:
        """The present state. Only the first rank calls it.

        :param sums: what `_sums` returned.
        """

    @property
    def parameters(self) -> int:
        """The number of parameters."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    @property
    def finished(self) -> bool:
        """Whether all iterations are done."""
        return self.iteration >= self.iterations

    @property
    def check_due(self) -> bool:
        """Whether to check the loss now."""
        return self.iteration % CHECK_EVERY == 0

    @property
    def save_due(self) -> bool:
        """Whether to save a checkpoint now. One is always saved before a point, since its evaluation may take long."""
        due = self.point_due or self.iteration % self._loop_settings.save_every == 0
        return self.iteration > self._saved and due

    @property
    def seconds(self) -> float:
        """Duration of all sessions so far."""
        return sum(session["seconds"] for session in self._sessions())

    def _sessions(self) -> list[Session]:
        session: Any = {**self._session, "seconds": time.monotonic() - self._session_began}
        return [*self._earlier_sessions, session]

    @property
    def _kept(self) -> str:
        return f"{self.files.checkpoint} holds iteration {self._saved:,}" if self._saved else "no checkpoint yet"

    def _difference(self, checkpoint: LoopCheckpoint, moments: Mapping[str, Collection[int]]) -> str | None:
        """How a checkpoint differs from this training's; None if no difference is found.

        :param moments: the optimiser's tensors by key, with the numbers of the parameters that have them.
        """
        if checkpoint.iteration > self.iterations:
            return f"{checkpoint.iteration:,} iterations are done, expected {self.iterations:,} at most"
        reached = [*(point.iteration for point in checkpoint.curve), checkpoint.iteration]
        if sorted(reached) != reached:
            return f"the curve's iterations don't increase up to {checkpoint.iteration:,}"
        if difference := weights_difference(self.model.state_dict(), checkpoint.model, saved=True):
            return difference
        groups = [group["params"] for group in self.optimiser.state_dict()["param_groups"]]
        if [group["params"] for group in checkpoint.optimiser["param_groups"]] != groups:
            return "the optimiser has other parameters"
        names = {parameter: name for name, parameter in self.model.named_parameters()}
        trained = dict(enumerate(each for group in self.optimiser.param_groups for each in group["params"]))
        of = {number: names[each] for number, each in trained.items()}
        for moment, numbers in moments.items():
            label = moment.removesuffix("_buffer")
            own = {f"{label} of {of[number]}": trained[number] for number in numbers if number in of}
            state = checkpoint.optimiser["state"].items()
            given = {f"{label} of {of.get(number, number)}": tensors[moment] for number, tensors in state}
            if difference := weights_difference(own, given, saved=True):
                return difference
        return None

    def _restore(
        self, checkpoint: LoopCheckpoint, *, difference: str | None, sessions: list[Session], point_seconds: float
    ) -> None:
        """Restores what all tasks have.

        :param difference: how the checkpoint differs from this training's; None if no difference was found.
        :raises ValueError: it differs.
        """
        if difference is not None:
            raise ValueError(
                f"{self.files.checkpoint} doesn't fit its own settings ({difference}): it is damaged or from another "
                "version; move it away to start again"
            )
        self.model.load_state_dict(checkpoint.model)
        groups = self.optimiser.state_dict()["param_groups"]  # the settings, not the checkpoint, determine the update
        self.optimiser.load_state_dict({"state": checkpoint.optimiser["state"], "param_groups": groups})
        self._point_began = time.monotonic() - point_seconds
        self.points = list(checkpoint.curve)
        self.iteration = self._saved = checkpoint.iteration
        self._earlier_sessions = sessions
        self._session["from"] = checkpoint.iteration

    def _write_settings(self, **content: Any) -> None:
        """Writes run.json with this content too, and the curve so far. Only the first rank calls it.

        :raises OSError: the disk is full, or there is no permission.
        """
        content = {
            "settings": self._loop_settings.to_dict(), "seed": self.seed, "processes": self.ranks.count,
            "parameters": self.parameters, **content,
        }  # fmt: skip
        path = self.files.settings
        with naming(path, consequence="free some space and repeat the command"), atomic_file(path) as temporary:
            temporary.write_text(json.dumps(content, indent=2) + "\n")
        write_curve(self.files.curve, self.points)

    def step(self) -> None:
        """Does one iteration, with the gradient of the mean loss over the batch of all ranks.

        It does not wait for the device.

        :raises ValueError: the device has not enough memory.
        """
        for group in self.optimiser.param_groups:
            group["lr"] = self.learning_rate(self.iteration)
        try:
            self._iterate()
        except (RuntimeError, MemoryError) as error:
            if out_of_memory(error):
                raise self._out_of_memory() from error
            raise
        self.iteration += 1

    def _descend(self, loss: Tensor, count: int) -> None:
        """Updates the weights.

        :param loss: the sum of this rank's losses.
        :param count: the number of losses over all ranks.
        """
        self.optimiser.zero_grad()
        # DistributedDataParallel divides the sum over ranks by their number
        (loss * (self.ranks.count / count)).backward()
        if self._loop_settings.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self._loop_settings.clip_norm)
        self.optimiser.step()

    def save(self) -> None:
        """Writes the checkpoint.

        :raises Diverged: see `check`. Then nothing is written.
        :raises OSError: the disk is full. The earlier checkpoint stays.
        """
        self.check()
        sums = self._sums()
        with self.ranks.together():
            if self.ranks.first:
                checkpoint = self._checkpoint(sums)
                self.files.check_lock()
                write_checkpoint(self.files.checkpoint, checkpoint)
        self._saved = self.iteration

    def _weights(self) -> dict[str, Tensor]:
        return {name: _on_cpu(tensor).contiguous() for name, tensor in self.model.state_dict().items()}

    def _optimiser_state(self) -> Any:
        """The optimiser's state dict, on the CPU."""
        found: dict[str, Any] = self.optimiser.state_dict()
        state = {
            number: {name: _on_cpu(value) for name, value in each.items()} for number, each in found["state"].items()
        }
        return {"state": state, "param_groups": found["param_groups"]}


def train_to_the_end(run: LoopRun[Point], *, line: Callable[[Point], str], notes: Sequence[str] = ()) -> None:
    """Does all iterations, with a progress bar, or a line each minute if there is no terminal. Writes the last iterate.

    :param line: the line on the terminal for a point of the curve.
    :param notes: lines for the terminal before the first iteration.
    :raises Interrupted: SIGTERM or SIGINT stopped the training, which was saved.
    :raises Diverged: the loss or a weight is not finite. Earlier checkpoints stay.
    :raises OSError: the disk is full.
    """
    ranks = run.ranks
    with (
        Progress(
            "training", total=run.iterations, done=run.iteration, unit=" iterations", log=60, beginning=False,
            shown=ranks.first,
        ) as progress,  # fmt: skip
        StopSignals(ranks) as signals,
    ):
        for note in notes:
            progress.note(note)
        while True:
            if number := signals.received():
                run.save()
                interrupted = Interrupted(number, iteration=run.iteration, checkpoint=run.files.checkpoint)
                if not ranks.first:
                    ranks.leave(interrupted.status)
                raise interrupted
            if run.save_due:
                run.save()
            elif run.check_due:
                run.check()
            if run.point_due:
                point = run.add_point()
                if point is not None and ranks.first:
                    progress.note(line(point))
                if run.finished:
                    run.save()
            if run.finished:
                break
            run.step()
            progress.update()
        run.finish()


def _on_cpu(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu()
