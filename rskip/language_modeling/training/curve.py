"""The learning curve: `curve.jsonl`, with one line per point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rskip.files.state import read_state_lines, state_line
from rskip.files.whole import atomic_file, naming
from rskip.settings.kinds import Count

_FULL = "the training stops, but its last checkpoint is complete: free some space and repeat the command to resume"


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """A point of the learning curve.

    :param iteration: number of completed iterations.
    :param lr: learning rate of the last iteration.
    :param train_loss: mean loss per token of the training batches since the previous point. Losses are in nats.
    :param valid_loss: loss per token of the validation text.
    :param tokens_per_second: training speed since the previous point, without evaluations.
    :param seconds: duration of all sessions so far, including evaluations.
    """

    iteration: Count
    lr: float
    train_loss: float
    valid_loss: float
    tokens_per_second: float
    seconds: float


def write_curve(path: Path, points: Sequence[CurvePoint]) -> None:
    """Writes all points, atomically.

    :raises OSError: the disk is full.
    """
    with naming(path, consequence=_FULL), atomic_file(path) as temporary:
        temporary.write_text("".join(map(state_line, points)))


def read_curve(path: Path, *, finished: bool = False) -> list[CurvePoint]:
    """The points in a curve.jsonl.

    :param finished: whether the training has ended. Then a damaged end is an error.
    :raises SettingError: a line is damaged.
    """
    advice = "move the training away to start again"
    return [point for point, _ in read_state_lines(path, CurvePoint, advice=advice, finished=finished)]
