"""The folder that a training writes into, and who works in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rskip.files.lock import folder_lock


class TrainingFolder:
    """Paths of one training.

    checkpoint.pt: everything to go on. curve.jsonl: the learning curve. settings: run.json, what it was started with.
    model.pt: the last iterate, when the training has ended. tensorboard/: events, where they were asked for.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoint = path / "checkpoint.pt"
        self.curve = path / "curve.jsonl"
        self.settings = path / "run.json"
        self.model = path / "model.pt"
        self.tensorboard = path / "tensorboard"

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Makes the folder where it is missing, holds it for this process, and clears away what a killed one left.

        :raises ValueError: another training holds it.
        """
        busy = f"{self.path} is in use by another training (process {{process}}): wait for it, or give another folder"
        with folder_lock(self.path, busy=busy):
            for half_written in self.path.glob(".*.partial.*"):  # rskip.files.whole's
                half_written.unlink()
            yield
