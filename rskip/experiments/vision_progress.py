"""Telling the user how a vision training goes: one line an epoch, read from its curve."""

from __future__ import annotations

from pathlib import Path

from rskip.vision.training.curve import CurvePoint, read_curve


class VisionProgress:
    """Call it now and then: it prints a line for each epoch that ended since the last call."""

    def __init__(self, curve: Path) -> None:
        self._curve = curve
        self._told = max((point.iteration for point in self._points()), default=0)

    def __call__(self) -> None:
        for point in self._points():
            if point.iteration > self._told:
                self._told = point.iteration
                print(_line(point), flush=True)

    def _points(self) -> list[CurvePoint]:
        return read_curve(self._curve) if self._curve.exists() else []


def _line(point: CurvePoint) -> str:
    parts = [f"  epoch {point.epoch:3d}", f"train loss {point.train_loss:.3f}", f"error {point.train_error:5.2f} %"]
    if point.test_loss is not None:
        parts += [f"test loss {point.test_loss:.3f}", f"error {point.test_error:5.2f} %"]
    return "   ".join([*parts, f"{point.seconds / 60:.1f} min"])
