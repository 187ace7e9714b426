"""Reading train.log: what `fairseq-train --log-format json` prints, and `rskip run`'s line before each session."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from rskip.tasks.run import SESSION, epoch_line

_JSON_LINE = re.compile(r"\| INFO \| (train|valid|train_inner) \| (\{.*\})$")
_MORE = ("valid_cider", "valid_reward")  # of captioning
_PARAMETERS = re.compile(r"num\. shared model params: ([\d,]+)")


@dataclass
class Epoch:
    """One epoch of the learning curve. Losses are in bits a target token, as fairseq logs them.

    update: updates done by the epoch's end; seconds: training time up to there, over all sessions; more: what a task's
    validation logs beside the losses.
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
        more = plain.pop("more")
        return {**plain, **more}


@dataclass
class TrainLog:
    """What a training's log says.

    seconds: the sessions' training times, summed; updates: the last that it names; target_tokens_per_second: mean over
    the epochs.
    """

    curve: list[Epoch] = field(default_factory=list)
    seconds: float = 0.0
    updates: int | None = None
    parameters: int | None = None
    target_tokens_per_second: float | None = None


def read_train_log(lines: Iterable[str]) -> TrainLog:
    """Reads one train.log. An epoch that was repeated after an interruption counts as last repeated."""
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
        elif match := _JSON_LINE.search(line):
            tag, values = match[1], json.loads(match[2])
            wall = values.get("train_wall" if tag == "train" else "wall")
            session = float(wall) if wall is not None else session
            updates = values.get("num_updates" if tag == "train_inner" else f"{tag}_num_updates")
            log.updates = int(float(updates)) if updates is not None else log.updates
            if tag == "train_inner":
                continue
            epoch = epochs.setdefault(values["epoch"], Epoch(epoch=values["epoch"]))
            if tag == "valid":
                _read_validation(epoch, values)
            else:
                _read_training(epoch, values)
                epoch.seconds = finished + session
                rates[epoch.epoch] = _number(values, "train_wps") or 0.0
    log.seconds = finished + session
    log.curve = [epochs[number] for number in sorted(epochs)]
    log.target_tokens_per_second = round(fmean(rates.values()), 1) if any(rates.values()) else None
    return log


def _read_validation(epoch: Epoch, values: Mapping[str, Any]) -> None:
    epoch.update = int(float(values["valid_num_updates"]))
    epoch.valid_loss = _number(values, "valid_loss")
    epoch.valid_nll_loss = _number(values, "valid_nll_loss")
    epoch.valid_ppl = _number(values, "valid_ppl")
    epoch.more = {name: value for name in _MORE if (value := _number(values, name)) is not None}


def _read_training(epoch: Epoch, values: Mapping[str, Any]) -> None:
    epoch.update = int(float(values["train_num_updates"]))
    epoch.train_loss = _number(values, "train_loss")
    epoch.lr = _number(values, "train_lr")


def _number(values: Mapping[str, Any], key: str) -> float | None:
    """None where the log has no such value or not a finite one (which JSON can't hold)."""
    value = values.get(key)
    return float(value) if value is not None and math.isfinite(float(value)) else None


def epoch_lines(log: Path) -> list[str]:
    """A line for each epoch of a log that has ended."""
    with log.open(encoding="utf-8", errors="replace") as lines:
        return [_epoch_line(epoch) for epoch in read_train_log(lines).curve if epoch.seconds is not None]


def _epoch_line(epoch: Epoch) -> str:
    figures = []
    if epoch.train_loss is not None:
        figures.append(f"train loss {epoch.train_loss:.3f}")
    if epoch.valid_loss is not None:
        figures.append(f"valid loss {epoch.valid_loss:.3f}")
    if epoch.valid_ppl is not None:
        figures.append(f"ppl {epoch.valid_ppl:.2f}")
    figures += [f"{name.replace('_', ' ')} {value:.3f}" for name, value in epoch.more.items()]
    return epoch_line(epoch.epoch, figures, epoch.seconds or 0)
