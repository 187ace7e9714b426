"""What a training says while it goes on: a bar on a terminal, and a line at each point of the curve."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TextIO

from tqdm import tqdm

from rskip.vision.training.curve import CurvePoint


class Progress:
    """Tells on stderr how far the training is, how fast, and how much time is left.

    :param iterations: of the whole training.
    :param done: of them, when this piece starts.
    :param epochs: of the whole training.
    :param told: whether this process tells anything; of several, one does.
    """

    def __init__(
        self, *, iterations: int, done: int, epochs: int, told: bool = True, stream: TextIO | None = None
    ) -> None:
        stream = sys.stderr if stream is None else stream
        self._iterations, self._done_before, self._epochs = iterations, done, epochs
        self._told, self._stream = told, stream
        self._begin = time.monotonic()
        self._bar = tqdm(
            total=iterations,
            initial=done,
            unit="batch",
            mininterval=0.5,
            dynamic_ncols=True,
            file=stream,
            disable=not (told and stream.isatty()),
        )

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bar.close()

    def advance(self) -> None:
        """One iteration is done."""
        self._bar.update()

    def tell_point(self, point: CurvePoint) -> None:
        """A line for a point of the curve."""
        parts = [
            f"epoch {point.epoch}/{self._epochs}",
            f"iteration {point.iteration:,}",
            f"lr {point.lr:.4g}",
            f"training loss {point.train_loss:.4f}, error {point.train_error:.2f} %",
        ]
        if point.test_loss is not None:
            parts.append(f"test loss {point.test_loss:.4f}, error {point.test_error:.2f} %")
        parts.append(f"{point.images_per_second:,.0f} images/s")
        if point.iteration < self._iterations:
            parts.append(f"{self._time_left(point.iteration)} left")
        self.tell("   ".join(parts))

    def tell(self, line: str) -> None:
        """Any line."""
        if self._told:
            self._bar.write(line, file=self._stream)
            self._stream.flush()

    def _time_left(self, done: int) -> str:
        each = (time.monotonic() - self._begin) / max(1, done - self._done_before)
        return tqdm.format_interval(each * (self._iterations - done))
