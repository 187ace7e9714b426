"""A training with its own loop: what is the same for all tasks in its steps, checkpoints and sessions."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from rskip.files.whole import atomic_file
from rskip.machine.progress import Progress
from rskip.machine.ranks import Ranks
from rskip.machine.torch_errors import out_of_memory
from rskip.tasks.loop import Interrupted, Observer, StopSignals
from rskip.tasks.loop_folder import LoopCheckpoint, LoopFolder, save_whole, write_curve

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
        self._earlier_sessions: list[dict[str, Any]] = []
        self._session: dict[str, Any] = {"from": 0, "device": device_name, "torch": str(torch.__version__)}
        self._begin_session()

    def _begin_session(self) -> None:
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
        """Writes the last iterate."""

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
        """The present state, with what `_sums` returned. Only the first rank calls it."""

    @property
    def finished(self) -> bool:
        """Whether all iterations are done."""
        return self.iteration >= self.iterations

    @property
    def save_due(self) -> bool:
        """Whether to save a checkpoint now. One is always saved before a point, since its evaluation may take long."""
        due = self.point_due or self.iteration % self._loop_settings.save_every == 0
        return self.iteration > self._saved and due

    @property
    def seconds(self) -> float:
        """Duration of all sessions so far."""
        return sum(session["seconds"] for session in self._sessions())

    def _sessions(self) -> list[dict[str, Any]]:
        return [*self._earlier_sessions, {**self._session, "seconds": time.monotonic() - self._session_began}]

    @property
    def _kept(self) -> str:
        return f"{self.files.checkpoint} holds iteration {self._saved:,}" if self._saved else "no checkpoint yet"

    def _restore(self, checkpoint: LoopCheckpoint, *, sessions: list[dict[str, Any]], point_seconds: float) -> None:
        """Restores what all tasks have."""
        self.model.load_state_dict(checkpoint.model)
        groups = self.optimiser.state_dict()["param_groups"]  # the settings, not the checkpoint, determine the update
        self.optimiser.load_state_dict({"state": checkpoint.optimiser["state"], "param_groups": groups})
        self._point_began = time.monotonic() - point_seconds
        self.points = list(checkpoint.curve)
        self.iteration = self._saved = checkpoint.iteration
        self._earlier_sessions = sessions
        self._session["from"] = checkpoint.iteration

    def _write_settings(self, **content: Any) -> None:
        """Writes run.json with this content too, and the curve so far. Only the first rank calls it."""
        content = {
            "settings": self._loop_settings.to_dict(), "seed": self.seed, "processes": self.ranks.count,
            "parameters": sum(parameter.numel() for parameter in self.model.parameters()), **content,
        }  # fmt: skip
        with atomic_file(self.files.settings) as temporary:
            temporary.write_text(json.dumps(content, indent=2) + "\n")
        write_curve(self.files.curve, self.points)

    def step(self) -> None:
        """Does one iteration, with the gradient of the mean loss over the batch of all ranks.

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
        """Updates the weights by the sum of this rank's losses, and the number of losses over all ranks."""
        self.optimiser.zero_grad()
        # DistributedDataParallel divides the sum over ranks by their number
        (loss * (self.ranks.count / count)).backward()
        if self._loop_settings.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self._loop_settings.clip_norm)
        self.optimiser.step()

    def save(self) -> None:
        """Writes the checkpoint.

        :raises Diverged: see `check`. Then nothing is written.
        """
        self.check()
        sums = self._sums()
        with self.ranks.together():
            if self.ranks.first:
                checkpoint = self._checkpoint(sums)
                self.files.check_lock()
                save_whole(self.files.checkpoint, checkpoint.content())
        self._saved = self.iteration

    def _weights(self) -> dict[str, Tensor]:
        return {name: _on_cpu(tensor).contiguous() for name, tensor in self.model.state_dict().items()}

    def _optimiser_state(self) -> Any:
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
    """
    ranks = run.ranks
    with (
        Progress(
            "training",
            total=run.iterations,
            done=run.iteration,
            unit=" iterations",
            log=60,
            beginning=False,
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
            elif run.iteration % CHECK_EVERY == 0:
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
