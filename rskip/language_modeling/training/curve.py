"""The learning curve: `curve.jsonl`, with one line per point."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rskip.settings.kinds import Count
from rskip.tasks.loop_folder import read_points


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


def read_curve(path: Path, *, finished: bool = False) -> list[CurvePoint]:
    """See `rskip.tasks.loop_folder.read_points`."""
    return read_points(path, CurvePoint, finished=finished)
