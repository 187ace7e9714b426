"""SIGTERM and SIGINT (Ctrl-C): the training finishes its iteration, saves and stops."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from rskip.machine.ranks import Ranks

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Interrupted(Exception):
    """A training was stopped by a signal, and saved.

    status: the exit status that says so to a shell: 143 for SIGTERM, 130 for SIGINT.
    """

    def __init__(self, number: int, *, iteration: int, checkpoint: Path) -> None:
        super().__init__(
            f"stopped by {signal.Signals(number).name} after {iteration:,} iterations, which are in {checkpoint}: "
            "repeat the command to go on"
        )
        self.status = 128 + number


class StopSignals:
    """Within the block the signals are noted instead of ending the process.

    A second one ends a process that is alone as it would without the block. To one of several, torchrun passes on what
    it gets itself, so a Ctrl-C comes twice.
    """

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._received = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def _note(self, number: int, _: FrameType | None) -> None:
        self._received = number
        if self._ranks.count == 1:
            self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def received(self) -> int:
        """The number of a signal that this process or another rank got, or 0; the same on all ranks."""
        if self._ranks.count == 1:
            return self._received
        return int(self._ranks.max(torch.tensor(self._received)))
