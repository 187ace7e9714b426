"""The learning curve for TensorBoard."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from rskip.vision.training.curve import CurvePoint


class TensorBoardCurve:
    """Writes the curve's points as TensorBoard's events, by iteration.

    :param folder: of the events.
    :param after: the iteration of the last point that a training that goes on knows; later events of before are
        hidden.
    :raises ValueError: TensorBoard is not installed.
    """

    def __init__(self, folder: Path, *, after: int) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ValueError(
                f"TensorBoard can't be imported ({error}): pip install 'rskip[tensorboard]', or leave --tensorboard out"
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
