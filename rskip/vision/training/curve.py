"""The learning curve: what its points are made of, `curve.jsonl`, one line a point, and TensorBoard's events."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypedDict

import torch
from torch import Tensor

from rskip.files.state import read_state_lines, state_line
from rskip.files.whole import atomic_file, naming
from rskip.machine.extras import extra
from rskip.machine.ranks import Ranks
from rskip.settings.kinds import Count, Whole

_FULL = "the training stops, but its last checkpoint is complete: free some space and repeat the command to resume"
_NEVER = torch.iinfo(torch.int64).max


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """One point of the learning curve.

    :param epoch: that the iteration belongs to, from 1; its last one but for the training's end.
    :param iteration: how many were done.
    :param lr: of the last one.
    :param train_loss, train_error: means over the images since the point before, as they were trained on: augmented,
        the loss with label smoothing. Losses are in nats, errors in %.
    :param test_loss, test_error: of the iterate here; None where it was not evaluated.
    :param images_per_second: training images since the point before, over the time that their training took.
    :param seconds: since the training's start, over all its sessions, evaluations included.
    """

    epoch: Count
    iteration: Count
    lr: float
    train_loss: float
    train_error: float
    test_loss: float | None
    test_error: float | None
    images_per_second: float
    seconds: float


class Curve:
    """The points so far, in memory and in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.points: list[CurvePoint] = []

    def rewrite(self) -> None:
        """Makes the file hold the points in memory and nothing else."""
        with naming(self.path, consequence=_FULL), atomic_file(self.path) as temporary:
            temporary.write_text("".join(map(state_line, self.points)))

    def append(self, point: CurvePoint) -> None:
        """Writes a further point at the file's end."""
        with naming(self.path, consequence=_FULL), self.path.open("a") as file:
            file.write(state_line(point))


def read_curve(path: Path, *, finished: bool = False) -> list[CurvePoint]:
    """The points of a curve.jsonl. Skips a damaged end, which a killed training may leave.

    :param finished: whether the training has ended; then a damaged end is an error.
    :raises SettingError: a line is damaged that is not skipped.
    """
    advice = "move the training away to start again"
    return [point for point, _ in read_state_lines(path, CurvePoint, advice=advice, finished=finished)]


class TensorBoardCurve:
    """Writes the curve's points as TensorBoard's events, by iteration.

    :param folder: of the events.
    :param after: the iteration of the last point that a resumed training has; later events, of before, are hidden.
    :raises ValueError: TensorBoard is not installed.
    """

    def __init__(self, folder: Path, *, after: int) -> None:
        with extra("tensorboard", what="the setting tensorboard"):
            from torch.utils.tensorboard import SummaryWriter
        self._writer: Any = SummaryWriter(str(folder), purge_step=after + 1)

    def add(self, point: CurvePoint) -> None:
        """One point: train/loss, train/error, test/loss, test/error, lr, epoch, images_per_second, seconds."""
        for name, value in asdict(point).items():
            if value is not None and name != "iteration":
                tag = name.replace("_", "/", 1) if name.startswith(("train_", "test_")) else name
                self._writer.add_scalar(tag, value, point.iteration)
        self._writer.flush()

    def close(self) -> None:
        """Writes what is left."""
        self._writer.close()


class MeterState(TypedDict):
    """The sums of a `Meter`, and their duration."""

    loss: float
    wrong: float
    images: Whole
    seconds: float


class Meter:
    """Loss and error of the training images since the last point, kept on the device: no iteration waits for it.

    images: how many, over all ranks, counted by who adds. N is the number of images of this rank's part of a batch.
    """

    def __init__(self, device: torch.device, ranks: Ranks) -> None:
        self._ranks = ranks
        self._sums = torch.zeros(2, dtype=torch.float64, device=device)  # loss, wrong
        self._first_bad = torch.tensor(_NEVER, device=device)
        self.images = 0

    def add(self, iteration: int, logits: Tensor, labels: Tensor, loss: Tensor) -> None:
        """A batch.

        :param iteration: its number.
        :param logits: Shape: (N, classes).
        :param labels: Shape: (N,).
        :param loss: the sum of this rank's losses.
        """
        loss = loss.detach()
        wrong = (logits.detach().argmax(dim=1) != labels).sum()
        self._sums += torch.stack([loss.double(), wrong.double()])
        first_bad = torch.minimum(self._first_bad, torch.where(loss.isfinite(), _NEVER, iteration))
        self._first_bad.copy_(first_bad)

    def first_bad(self) -> Tensor:
        """The first iteration whose loss was not finite, on any rank, on the device; without one, 2⁶³ - 1."""
        return self._ranks.min(self._first_bad)

    def means(self) -> tuple[float, float]:
        """Loss and error in %, over all ranks."""
        loss, wrong = self._ranks.sum(self._sums).tolist()
        return loss / self.images, 100 * wrong / self.images

    def reset(self) -> None:
        """Sets the sums to 0."""
        self._sums.zero_()
        self.images = 0

    def state(self) -> dict[str, float]:
        """Everything as plain numbers, over all ranks."""
        loss, wrong = self._ranks.sum(self._sums).tolist()
        return {"loss": loss, "wrong": wrong, "images": self.images}

    def load(self, state: MeterState) -> None:
        """What `state` gave: the first rank has it, the others add nothing."""
        share = [state["loss"], state["wrong"]] if self._ranks.first else [0.0, 0.0]
        self._sums.copy_(torch.tensor(share, dtype=torch.float64))
        self.images = state["images"]
