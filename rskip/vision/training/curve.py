"""Writes the learning curve to `curve.jsonl`, with one line per point, and as TensorBoard's events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rskip.extras import extra
from rskip.machine.ranks import Ranks
from rskip.settings.kinds import Count
from rskip.tasks.loop_folder import read_points

_NEVER = torch.iinfo(torch.int64).max


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """A point of the learning curve, at the end of an epoch or of the training.

    :param epoch: the epoch, from 1.
    :param iteration: number of completed iterations.
    :param lr: learning rate of the last iteration.
    :param train_loss, train_error: means over the training images since the previous point, with augmentation and label
        smoothing. Losses are in nats, errors in %.
    :param test_loss, test_error: results of the current iterate; None if it was not evaluated.
    :param images_per_second: training speed since the previous point.
    :param seconds: duration of all sessions so far, including evaluations.
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


def read_curve(path: Path, *, finished: bool = False) -> list[CurvePoint]:
    """See `rskip.tasks.loop_folder.read_points`."""
    return read_points(path, CurvePoint, finished=finished)


class TensorBoardCurve:
    """Writes the curve's points as TensorBoard's events, by iteration.

    :param after: iteration of the last point of a resumed training. Later events of earlier sessions are hidden.
    """

    def __init__(self, folder: Path, *, after: int) -> None:
        with extra("tensorboard", what="the setting tensorboard"):
            from torch.utils.tensorboard import SummaryWriter
        self._writer: Any = SummaryWriter(str(folder), purge_step=after + 1)

    def add(self, point: CurvePoint) -> None:
        """Writes a point: train/loss, train/error, test/loss, test/error, lr, epoch, images_per_second, seconds."""
        for name, value in asdict(point).items():
            if value is not None and name != "iteration":
                tag = name.replace("_", "/", 1) if name.startswith(("train_", "test_")) else name
                self._writer.add_scalar(tag, value, point.iteration)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class Meter:
    """Loss and error of the training images since the last point, on the device, so that no iteration waits for it.

    `images` is their number over all ranks, which the caller counts. N is the number of images in this rank's part of a
    batch.
    """

    def __init__(self, device: torch.device, ranks: Ranks) -> None:
        self._ranks = ranks
        self._sums = torch.zeros(2, dtype=torch.float64, device=device)  # loss, wrong
        self._first_bad = torch.tensor(_NEVER, device=device)
        self.images = 0

    def add(self, iteration: int, logits: Tensor, labels: Tensor, loss: Tensor) -> None:
        """Adds a batch: logits (N, classes), labels (N,), and the sum of this rank's losses."""
        loss = loss.detach()
        wrong = (logits.detach().argmax(dim=1) != labels).sum()
        self._sums += torch.stack([loss.double(), wrong.double()])
        first_bad = torch.minimum(self._first_bad, torch.where(loss.isfinite(), _NEVER, iteration))
        self._first_bad.copy_(first_bad)

    def first_bad(self) -> Tensor:
        """The first iteration with a loss that was not finite on any rank, or 2⁶³ - 1. It is on the device."""
        return self._ranks.min(self._first_bad)

    def means(self) -> tuple[float, float]:
        """Mean loss, and error in %, over all ranks."""
        loss, wrong = self._ranks.sum(self._sums).tolist()
        return loss / self.images, 100 * wrong / self.images

    def reset(self) -> None:
        """Sets the sums to 0."""
        self._sums.zero_()
        self.images = 0

    def state(self) -> dict[str, float]:
        """The state as plain numbers, over all ranks."""
        loss, wrong = self._ranks.sum(self._sums).tolist()
        return {"loss": loss, "wrong": wrong, "images": self.images}

    def load(self, state: Mapping[str, Any]) -> None:
        """Restores a `state` in the first rank. The other ranks start with 0."""
        share = [state["loss"], state["wrong"]] if self._ranks.first else [0.0, 0.0]
        self._sums.copy_(torch.tensor(share, dtype=torch.float64))
        self.images = state["images"]
