"""The trace of a training: every block's signals, loss gradient and gates at every n-th update, as JSON lines."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

import torch
from torch import Tensor, nn

from rskip.analysis.blocks import residual_blocks
from rskip.analysis.measurement import Measurement, plain_value
from rskip.analysis.signals import SignalRecorder
from rskip.files.whole import atomic_file
from rskip.settings.check import convert
from rskip.settings.text import parse_json, read_text

_OF_BLOCKS = (
    "block", "stage", "name", "sublayer", "x_rms", "f_rms", "y_rms", "similarity", "gradient", "alpha", "beta", "gamma",
)  # fmt: skip
_OF_UPDATES = ("loss", "gradient_norm")


def due(update: int, *, every: int) -> bool:
    """Whether an update, counted from 1, gets a line: the first one and every n-th one do."""
    return update == 1 or update % every == 0


class Trace:
    """The file that a training writes. Lines of an earlier session for updates after its checkpoint are removed.

    :param done: number of finished updates.
    """

    def __init__(self, path: Path, *, done: int) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            text = path.read_text(encoding="utf-8")
            kept = "".join(f"{json.dumps(each)}\n" for each in read_updates(path) if each["update"] <= done)
            if kept != text:
                with atomic_file(path) as temporary:
                    temporary.write_text(kept, encoding="utf-8")

    def add(self, update: int, blocks: Sequence[Mapping[str, Any]], **figures: float | None) -> None:
        """Adds one line for an update. Values that are not finite become null.

        :param blocks: rows from a `SignalRecorder`.
        :param figures: `loss` and `gradient_norm` of the whole update.
        """
        line = {"update": update, **_plain(figures), "blocks": [_plain(block) for block in blocks]}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, allow_nan=False) + "\n")


class TraceObserver:
    """Writes the trace of a training; an `rskip.tasks.training.Observer`.

    It runs the iteration's batch through a copy of the model in training mode, because the model may be compiled, and
    an additional pass would change its running statistics. Loss (nats) and the norm of the whole gradient are means
    over the batch, or with several processes over the first process's part.

    :param every: number of iterations between two lines.
    :param writes: whether this process writes the file. All processes must call it, because they may share statistics.
    """

    def __init__(self, path: Path, *, every: int, writes: bool) -> None:
        self._path, self._every, self._writes = path, every, writes
        self._trace: Trace | None = None

    def __call__(self, iteration: int, model: nn.Module, loss_of: Callable[[nn.Module], Tensor], *, count: int) -> None:
        if self._trace is None and self._writes:
            self._trace = Trace(self._path, done=iteration - 1)
        if not due(iteration, every=self._every):
            return
        copied = copy.deepcopy(model)
        copied.zero_grad()
        recorder = SignalRecorder(residual_blocks(copied))
        with recorder.recording():
            loss = loss_of(copied)
            loss.backward()
        norms = [each.grad.norm() for each in copied.parameters() if each.grad is not None]
        figures = {"loss": float(loss.detach()) / count, "gradient_norm": float(torch.stack(norms).norm()) / count}
        if self._trace is not None:
            self._trace.add(iteration, recorder.rows(), **figures)


class Update(TypedDict):
    """A line of a trace. It also has `loss` and `gradient_norm`."""

    update: int
    blocks: list[dict[str, Any]]


def read_updates(path: Path) -> list[Update]:
    """The lines of a trace. A truncated last line is skipped.

    :raises SettingError: a line is not an update of a trace. The message names the file and the line.
    """
    updates: list[Update] = []
    for number, line in enumerate(read_text(path).splitlines(keepends=True), start=1):
        if not line.endswith("\n"):
            break
        source = f"{path}, line {number}"
        updates.append(convert(parse_json(line, source=source), Update, source=source))
    return updates


def read_trace(path: Path, *, model: str, seed: int) -> Measurement:
    """A trace as rows, one per block and update, with the update's loss and gradient norm.

    None means absent or not finite.

    :param model: label for the rows.
    :raises SettingError: see `read_updates`.
    """
    rows: list[dict[str, Any]] = [
        {"model": model, "seed": seed, "update": each["update"]}
        | {key: block.get(key) for key in _OF_BLOCKS}
        | {key: each.get(key) for key in _OF_UPDATES}
        for each in read_updates(path)
        for block in each["blocks"]
    ]
    conditions = {"gradient": "of the update's summed loss, mean over its examples", "batch": "the update's own"}
    return Measurement(analysis="trace", conditions=conditions, rows=rows)


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: plain_value(value) for key, value in values.items()}
