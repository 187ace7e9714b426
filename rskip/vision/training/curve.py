"""The learning curve: `curve.jsonl`, one line a point, and TensorBoard's events."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rskip.files.disk import naming
from rskip.files.whole import atomic_file

_FULL = "the training stops; its last checkpoint is whole: make room and repeat the command to go on"


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """One point of the learning curve.

    epoch: that the iteration belongs to, from 1; its last one but for the training's end.
    iteration: how many were done.
    lr: of the last one.
    train_loss, train_error: means over the images since the point before, as they were trained on: augmented, the
        loss with label smoothing. Losses are in nats, errors in %.
    test_loss, test_error: of the iterate here; None where it was not evaluated.
    images_per_second: training images since the point before, over the time that their training took.
    seconds: since the training's start, over all its sessions, evaluations included.
    """

    epoch: int
    iteration: int
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
            temporary.write_text("".join(_line(point) for point in self.points))

    def append(self, point: CurvePoint) -> None:
        """Writes a further point at the file's end."""
        with naming(self.path, consequence=_FULL), self.path.open("a") as file:
            file.write(_line(point))


def read_curve(path: Path) -> list[CurvePoint]:
    """The points of a curve.jsonl. A line that a killed training left half written, the last one, is left out."""
    lines = path.read_text().splitlines(keepends=True)
    return [CurvePoint(**json.loads(line)) for line in lines if line.endswith("\n")]


def _line(point: CurvePoint) -> str:
    return json.dumps(asdict(point)) + "\n"


class TensorBoardCurve:
    """Writes the curve's points as TensorBoard's events, by iteration.

    :param folder: of the events.
    :param after: the iteration of the last point that a resumed training has; later events, of before, are hidden.
    :raises ValueError: TensorBoard is not installed.
    """

    def __init__(self, folder: Path, *, after: int) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ValueError(
                f"TensorBoard can't be imported ({error}): pip install 'rskip[tensorboard]', or leave tensorboard out"
            ) from None
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
