"""Manages the folder of a training with its own loop: its lock, its paths, and the atomic writing of its files."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypedDict

import torch

from rskip.files.folder_lock import FolderLock, folder_lock
from rskip.files.whole import atomic_file, naming
from rskip.settings.kinds import Whole


class LoopFolder:
    """The paths of a training.

    - checkpoint.pt: the state for resuming
    - curve.jsonl: the learning curve
    - run.json: the settings
    - model.pt: the last iterate, after the end
    - tensorboard/: events, if they were requested
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoint = path / "checkpoint.pt"
        self.curve = path / "curve.jsonl"
        self.settings = path / "run.json"
        self.model = path / "model.pt"
        self.tensorboard = path / "tensorboard"
        self._lock: FolderLock | None = None

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Creates the folder if it is missing, locks it for this process, and removes leftovers of a killed process.

        :raises ValueError: another training has locked it.
        """
        busy = f"{self.path} is in use by another training (process {{process}}): wait for it, or give another folder"
        with folder_lock(self.path, busy=busy) as self._lock:
            for half_written in self.path.glob(".*.partial.*"):  # temporary files of rskip.files.whole
                half_written.unlink()
            yield

    def check_lock(self) -> None:
        """:raises LockLost: the folder was locked, but another process has taken it over."""
        if self._lock is not None:
            self._lock.check()


Session = TypedDict("Session", {"from": Whole, "device": str, "torch": str, "seconds": float})


def save_whole(path: Path, content: object, *, consequence: str) -> None:
    """Calls torch.save, atomically.

    :raises OSError: the file can't be written. The error names the file and the consequence.
    """
    memory = io.BytesIO()  # on a full disk, torch.save would raise a RuntimeError about its archive
    torch.save(content, memory)
    with naming(path, consequence=consequence), atomic_file(path) as temporary:
        temporary.write_bytes(memory.getbuffer())
