"""Reads train.log: the output of `fairseq-train --log-format json`, and the line of `rskip run` before each session."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from rskip.machine.terminal import duration
from rskip.tasks.run import SESSION

JSON_LINE = re.compile(r"\| INFO \| (train|valid|train_inner) \| (\{.*\})$")
"""A line of metrics: which kind, and the metrics as a JSON object."""

_MORE = ("valid_cider", "valid_reward")  # of captioning
_PARAMETERS = re.compile(r"num\. shared model params: ([\d,]+)")


@dataclass
class Epoch:
    """One epoch of the learning curve. Losses are in bits per target token, as fairseq logs them.

    update: updates up to the end of the epoch; seconds: training time up to there, over all sessions; more: other
    values that the validation of a task logs.
    """

    epoch: int
    update: int | None = None
    train_loss: float | None = None
    valid_loss: float | None = None
    valid_nll_loss: float | None = None
    valid_ppl: float | None = None
    lr: float | None = None
    seconds: float | None = None
    more: dict[str, float] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        plain = asdict(self)
        return plain | plain.pop("more")


@dataclass
class TrainLog:
    """The content of a training log.

    validations: one `Epoch` per validation, also within epochs; seconds: training time over all sessions; updates: the
    last logged update; target_tokens_per_second: mean over the epochs.
    """

    curve: list[Epoch] = field(default_factory=list)
    validations: list[Epoch] = field(default_factory=list)
    seconds: float = 0.0
    updates: int | None = None
    parameters: int | None = None
    target_tokens_per_second: float | None = None


def read_train_log(lines: Iterable[str]) -> TrainLog:
    """Reads one train.log. If an epoch was repeated after an interruption, the last repetition counts."""
    log = TrainLog()
    epochs: dict[int, Epoch] = {}
    rates: dict[int, float] = {}
    finished = session = 0.0
    for line in lines:
        line = line.rstrip("\n")
        if line.startswith(SESSION):
            finished, session = finished + session, 0.0
        elif match := _PARAMETERS.search(line):
            log.parameters = int(match[1].replace(",", ""))
        elif match := JSON_LINE.search(line):
            tag, figures = match[1], {name: _number(value) for name, value in json.loads(match[2]).items()}
            wall = figures.get("train_wall" if tag == "train" else "wall")
            session = wall if wall is not None else session
            updates = figures.get("num_updates" if tag == "train_inner" else f"{tag}_num_updates")
            log.updates = int(updates) if updates is not None else log.updates
            if tag == "train_inner":
                continue
            assert updates is not None
            number = int(figures["epoch"] or 0)
            epoch = epochs.setdefault(number, Epoch(epoch=number))
            epoch.update = int(updates)
            if tag == "valid":
                validation = Epoch(epoch=number, update=int(updates), seconds=finished + session)
                log.validations.append(validation)
                for each in (epoch, validation):
                    each.valid_loss, each.valid_ppl = figures.get("valid_loss"), figures.get("valid_ppl")
                    each.valid_nll_loss = figures.get("valid_nll_loss")
                    each.more = {name: value for name in _MORE if (value := figures.get(name)) is not None}
            else:
                epoch.train_loss, epoch.lr = figures.get("train_loss"), figures.get("train_lr")
                epoch.seconds = finished + session
                rates[number] = figures.get("train_wps") or 0.0
    log.seconds = finished + session
    log.curve = [epochs[number] for number in sorted(epochs)]
    log.target_tokens_per_second = round(fmean(rates.values()), 1) if any(rates.values()) else None
    return log


def _number(value: Any) -> float | None:
    """The number, which fairseq writes as text; None if it is not finite."""
    try:
        number = float(value)
    except (TypeError, ValueError):  # other values of fairseq's line, such as texts
        return None
    return number if math.isfinite(number) else None


def epoch_lines(log: Path, *, epochs: int = 0, updates: int = 0, by_update: bool = False) -> list[str]:
    """One line per finished epoch of a log, with an estimate of the remaining time.

    :param epochs: epochs of the whole training; 0: unknown.
    :param updates: likewise. If both are known, the earlier end counts.
    :param by_update: one line per validation instead, if the training validates and saves within epochs.
    """
    with log.open(encoding="utf-8", errors="replace") as lines:
        read = read_train_log(lines)
    found = read.validations if by_update else [epoch for epoch in read.curve if epoch.seconds is not None]
    return [_line(each, by_update=by_update) + _left(each, epochs, updates) for each in found]


def _left(epoch: Epoch, epochs: int, updates: int) -> str:
    """The remaining time of the training after an epoch, at the same speed."""
    parts = [epoch.epoch / epochs if epochs else 0.0, (epoch.update or 0) / updates if updates else 0.0]
    done = max(parts)
    if not 0 < done < 1 or not epoch.seconds:
        return ""
    return f", about {duration(epoch.seconds * (1 - done) / done)} left"


def _line(epoch: Epoch, *, by_update: bool) -> str:
    figures = [f"update {epoch.update:,}"] if by_update else []
    if epoch.train_loss is not None:
        figures.append(f"train loss {epoch.train_loss:.3f}")
    if epoch.valid_loss is not None:
        figures.append(f"valid loss {epoch.valid_loss:.3f}")
    if epoch.valid_ppl is not None:
        figures.append(f"ppl {epoch.valid_ppl:.2f}")
    figures += [f"{name.replace('_', ' ')} {value:.3f}" for name, value in epoch.more.items()]
    return "   ".join([f"  epoch {epoch.epoch:3d}", *figures, f"{(epoch.seconds or 0) / 60:.1f} min"])
