"""The folder that a training writes into, and who works in it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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
        self.path.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o666)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = os.pread(descriptor, 32, 0).decode().strip() or "unknown"
                raise ValueError(
                    f"{self.path} is in use by another training (process {holder}): wait for it, or give another folder"
                ) from None
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
            for half_written in self.path.glob(".*.partial.*"):  # rskip.atomic_file's
                half_written.unlink()
            yield
        finally:
            os.close(descriptor)
