"""Manages the folder of a training with its own loop: its lock, its checkpoint and its curve."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from rskip.files.folder_lock import FolderLock, folder_lock
from rskip.files.state import as_state, read_state_lines, state_line
from rskip.files.torch_file import read_torch_file
from rskip.files.whole import atomic_file
from rskip.settings.differences import differences
from rskip.settings.kinds import Count, Whole


class LoopFolder:
    """The paths of a training.

    - checkpoint.pt: the state for resuming
    - curve.jsonl: the learning curve
    - run.json: the settings
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoint = path / "checkpoint.pt"
        self.curve = path / "curve.jsonl"
        self.settings = path / "run.json"
        self._lock: FolderLock | None = None

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Creates the folder if it is missing, locks it for this process, and removes leftovers of a killed process.

        :raises ValueError: another training run has locked it.
        """
        used = f"{self.path} is in use by another training run (process {{process}})"
        with folder_lock(self.path, busy=f"{used}: wait for it, or choose another folder") as self._lock:
            for half_written in self.path.glob(".*.partial.*"):  # temporary files of rskip.files.whole
                half_written.unlink()
            yield

    def check_lock(self) -> None:
        """:raises LockLost: the folder was locked, but another process has taken it over."""
        if self._lock is not None:
            self._lock.check()


@dataclass(frozen=True, kw_only=True)
class LoopCheckpoint:
    """A training's state after an iteration. The fields have the names of the file's keys; absent ones are None.

    settings, seed, processes: `to_dict()` of the task's settings, the random seed and the number of processes. Only a
    training with the same values resumes from it.
    iteration, model, optimiser: number of completed iterations, and state dicts.
    curve: the points so far, as in curve.jsonl.
    """

    settings: dict[str, Any]
    seed: int
    processes: Count
    iteration: Whole
    model: dict[str, Tensor]
    optimiser: Any
    curve: list[Any]

    def content(self) -> dict[str, Any]:
        """The file's content, of tensors and plain values."""
        content = {field.name: getattr(self, field.name) for field in fields(self)}
        content["curve"] = [asdict(point) for point in self.curve]
        return {name: value for name, value in content.items() if value is not None}


State = TypeVar("State", bound=LoopCheckpoint)
Point = TypeVar("Point")


def read_checkpoint(path: Path, kind: type[State], *, written_by: str) -> State | None:
    """The checkpoint on the CPU; None if it does not exist. It runs no pickle.

    :param written_by: the command that writes such files.
    :raises ValueError: the file is truncated, damaged or not a checkpoint.
    """
    if not path.exists():
        return None
    advice = "move it away to start again"
    content = read_torch_file(path, kind=f"file of `{written_by}`", advice=f"; {advice}")
    return as_state(content, kind, source=str(path), advice=advice)


def check_same_training(path: Path, there: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """:raises ValueError: the checkpoint is from a training run with other settings. The error lists them."""
    if listed := "; ".join(differences(there, now)):
        raise ValueError(
            f"{path} is from a training run with other settings ({listed}): use the same settings, or choose another "
            "folder"
        )


def write_curve(path: Path, points: Sequence[Any]) -> None:
    """Writes all points of a learning curve, one per line, atomically."""
    with atomic_file(path) as temporary:
        temporary.write_text("".join(map(state_line, points)))


def read_points(path: Path, kind: type[Point], *, finished: bool) -> list[Point]:
    """The points in a curve.jsonl. Skips a damaged end, which a killed training may leave.

    :param finished: whether the training has ended. Then a damaged end is an error.
    :raises SettingError: a line is damaged.
    """
    advice = "move the folder away to start again"
    return [point for point, _ in read_state_lines(path, kind, advice=advice, finished=finished)]


def save_whole(path: Path, content: object) -> None:
    """Calls torch.save, atomically.

    :raises OSError: the file can't be written. An earlier file stays.
    """
    memory = io.BytesIO()  # on a full disk, torch.save would raise a RuntimeError about its archive
    torch.save(content, memory)
    with atomic_file(path) as temporary:
        temporary.write_bytes(memory.getbuffer())
