"""Reading train.log: what `fairseq-train --log-format json` prints, and a line of ours at each start."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Any

_START = "rskip run | "
_JSON_LINE = re.compile(r"\| INFO \| (train|valid|train_inner) \| (\{.*\})$")
_PARAMETERS = re.compile(r"num\. shared model params: ([\d,]+)")


@dataclass
class Epoch:
    """One epoch of the learning curve. Losses are in bits a target token, as fairseq logs them.

    update: updates done by the epoch's end; seconds: training time up to there, over all pieces of the run.
    """

    epoch: int
    update: int | None = None
    train_loss: float | None = None
    valid_loss: float | None = None
    valid_nll_loss: float | None = None
    valid_ppl: float | None = None
    lr: float | None = None
    seconds: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


@dataclass
class TrainLog:
    """A training as its log tells it.

    starts: what each piece of the run was started with (`start_line`); seconds: the pieces' training times,
    summed; target_tokens_per_second: mean over the epochs.
    """

    starts: list[dict[str, Any]] = field(default_factory=list)
    curve: list[Epoch] = field(default_factory=list)
    seconds: float = 0.0
    parameters: int | None = None
    target_tokens_per_second: float | None = None


def start_line(description: Mapping[str, Any]) -> str:
    """The line that is written to train.log when a piece of the run starts."""
    return f"{_START}{json.dumps(description)}\n"


def read_train_log(lines: Iterable[str]) -> TrainLog:
    """Reads one train.log. An epoch that was repeated after an interruption counts as last repeated."""
    log = TrainLog()
    epochs: dict[int, Epoch] = {}
    rates: dict[int, float] = {}
    finished_pieces = piece = 0.0
    for line in lines:
        line = line.rstrip("\n")
        if line.startswith(_START):
            log.starts.append(json.loads(line[len(_START) :]))
            finished_pieces, piece = finished_pieces + piece, 0.0
        elif match := _PARAMETERS.search(line):
            log.parameters = int(match[1].replace(",", ""))
        elif match := _JSON_LINE.search(line):
            tag, values = match[1], json.loads(match[2])
            wall = values.get("train_wall" if tag == "train" else "wall")
            piece = float(wall) if wall is not None else piece
            if tag == "train_inner":
                continue
            epoch = epochs.setdefault(values["epoch"], Epoch(epoch=values["epoch"]))
            if tag == "valid":
                _read_validation(epoch, values)
            else:
                _read_training(epoch, values)
                epoch.seconds = finished_pieces + piece
                rates[epoch.epoch] = _number(values, "train_wps") or 0.0
    log.seconds = finished_pieces + piece
    log.curve = [epochs[number] for number in sorted(epochs)]
    log.target_tokens_per_second = round(fmean(rates.values()), 1) if any(rates.values()) else None
    return log


def _read_validation(epoch: Epoch, values: Mapping[str, Any]) -> None:
    epoch.update = int(float(values["valid_num_updates"]))
    epoch.valid_loss = _number(values, "valid_loss")
    epoch.valid_nll_loss = _number(values, "valid_nll_loss")
    epoch.valid_ppl = _number(values, "valid_ppl")


def _read_training(epoch: Epoch, values: Mapping[str, Any]) -> None:
    epoch.update = int(float(values["train_num_updates"]))
    epoch.train_loss = _number(values, "train_loss")
    epoch.lr = _number(values, "train_lr")


def _number(values: Mapping[str, Any], key: str) -> float | None:
    """None where the log has no such value or not a finite one (which JSON can't hold)."""
    value = values.get(key)
    return float(value) if value is not None and math.isfinite(float(value)) else None
