"""The folder of a training that `rskip.tasks.training` runs: checkpoint, curve, settings, and a tracker's files."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypedDict, TypeVar

from torch import Tensor

from rskip.extras import extra
from rskip.files.folder_lock import FolderLock, folder_lock
from rskip.files.state import as_state, read_state, read_state_lines, state_line
from rskip.files.torch_file import read_torch_file
from rskip.files.whole import atomic_file
from rskip.settings.differences import differences
from rskip.settings.kinds import Count, Whole

Tracker = Literal["tensorboard", "wandb"]
Point = TypeVar("Point")
AGAIN = "move it away to start again"


class _Begun(TypedDict):
    settings: dict[str, Any]


class TrainingFolder:
    """The paths of a training.

    - checkpoint.pt: the state for resuming
    - curve.jsonl: the learning curve, with one line per point
    - run.json: the settings
    - tensorboard/, wandb/: what a tracker writes
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

    def begun_with(self) -> Mapping[str, Any] | None:
        """The settings in run.json, with which the training began; None if the file doesn't exist."""
        if not self.settings.is_file():
            return None
        return read_state(self.settings, _Begun, advice=f"move {self.path} away to start again")["settings"]

    def write_curve(self, points: Sequence[Any]) -> None:
        """Writes all points of the learning curve, atomically."""
        with atomic_file(self.curve) as temporary:
            temporary.write_text("".join(map(state_line, points)))


def read_points(path: Path, kind: type[Point]) -> list[Point]:
    """The points in a curve.jsonl.

    :raises SettingError: a line is damaged.
    """
    advice = "move the folder away to start again"
    return [point for point, _ in read_state_lines(path, kind, advice=advice, finished=True)]


@dataclass(frozen=True, kw_only=True)
class TrainingCheckpoint:
    """A training's state after an iteration. The fields are the keys of checkpoint.pt.

    The random numbers of an iteration depend on seed and iteration only.

    settings, seed, processes, data: only a training with the same values resumes from it (`data`: what identifies the
        images or the text).
    iteration, iterations: number of completed iterations, and the length of the training.
    model, optimiser: state dicts.
    config: the content of the finished model's config.json.
    sums, count, seconds: since the last point of the curve: sums of the losses and other measures of the examples,
        their number, and the time.
    curve: the points so far, as in curve.jsonl.
    sessions: one entry per session: "from" (iteration), "device", "torch" (version), "seconds".
    """

    settings: dict[str, Any]
    seed: int
    processes: Count
    data: dict[str, Any]
    iteration: Whole
    iterations: Count
    model: dict[str, Tensor]
    optimiser: Any
    config: dict[str, Any]
    sums: list[float]
    count: Whole
    seconds: float
    curve: list[dict[str, Any]]
    sessions: list[dict[str, Any]]


def read_checkpoint(path: Path) -> TrainingCheckpoint | None:
    """The checkpoint on the CPU; None if it does not exist. It runs no pickle.

    :raises ValueError: the file is truncated, damaged or not a checkpoint.
    """
    if not path.exists():
        return None
    content = read_torch_file(path, kind="file of `rskip vision train` or `rskip lm train`", advice=f"; {AGAIN}")
    return as_state(content, TrainingCheckpoint, source=str(path), advice=AGAIN)


def check_same(path: Path, there: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """:raises ValueError: the checkpoint is from a training run with other settings. The error lists them.

    The data are compared by their checksum, not by the setting `data`, which is their path.
    """
    plain = ({name: value for name, value in each.items() if name != "data"} for each in (there, now))
    if listed := "; ".join(differences(*plain)):
        raise ValueError(
            f"{path} is from a training run with other settings ({listed}): use the same settings, or choose another "
            "folder"
        )


@contextmanager
def tracking(
    tracker: Tracker, folder: Path, *, name: str, config: Mapping[str, Any], after: int
) -> Iterator[Callable[[Any], None]]:
    """Gives what passes a point of the curve to a tracker: train/loss, test/error, lr and so on, by iteration.

    :param name: of the run in Weights & Biases.
    :param after: iteration of the last point of a resumed training. Later events of earlier sessions are hidden.
    :raises ValueError: the tracker is not installed.
    """
    if tracker == "tensorboard":
        with extra("tensorboard", what="the tracker tensorboard"):
            from torch.utils.tensorboard import SummaryWriter
        writer: Any = SummaryWriter(str(folder / "tensorboard"), purge_step=after + 1)
        end = writer.close
    else:
        try:
            import wandb
        except ImportError as error:
            raise ValueError(f"the tracker wandb can't be used ({error}): pip install wandb") from error
        mode: Any = os.environ.get("WANDB_MODE", "offline")
        wandb_run = wandb.init(project="rskip", name=name, dir=str(folder), config=dict(config), mode=mode)
        end = wandb_run.finish  # otherwise the next training of this process would go on with this run

    def track(point: Any) -> None:
        values = {name: value for name, value in asdict(point).items() if value is not None and name != "iteration"}
        tags = {re.sub("^(train|test|valid)_", r"\1/", name): value for name, value in values.items()}
        if tracker == "wandb":
            wandb_run.log(tags, step=point.iteration)
            return
        for tag, value in tags.items():
            writer.add_scalar(tag, value, point.iteration)
        writer.flush()

    try:
        yield track
    finally:
        end()
