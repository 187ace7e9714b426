"""Telling the user how a training goes: one line an epoch, read from its log."""

from __future__ import annotations

from pathlib import Path

from rskip.experiments.train_log import Epoch, read_train_log


class TrainingProgress:
    """Call it now and then: it prints a line for each epoch that ended since the last call."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._size = -1
        self._told = len(self._ended())

    def __call__(self) -> None:
        for epoch in self._ended()[self._told :]:
            self._told += 1
            print(_line(epoch), flush=True)

    def _ended(self) -> list[Epoch]:
        if not self._log.exists() or self._log.stat().st_size == self._size:
            return []
        self._size = self._log.stat().st_size
        with self._log.open(encoding="utf-8", errors="replace") as lines:
            return [epoch for epoch in read_train_log(lines).curve if epoch.seconds is not None]


def _line(epoch: Epoch) -> str:
    parts = [f"  epoch {epoch.epoch:3d}"]
    if epoch.train_loss is not None:
        parts.append(f"train loss {epoch.train_loss:.3f}")
    if epoch.valid_loss is not None:
        parts.append(f"valid loss {epoch.valid_loss:.3f}")
    if epoch.valid_ppl is not None:
        parts.append(f"ppl {epoch.valid_ppl:.2f}")
    parts.append(f"{(epoch.seconds or 0) / 60:.1f} min")
    return "   ".join(parts)
