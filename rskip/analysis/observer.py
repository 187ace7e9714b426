"""Looks into an image model while it is trained."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from rskip.analysis.blocks import residual_blocks
from rskip.analysis.signals import SignalRecorder
from rskip.analysis.trace import Trace, due


class TraceObserver:
    """Writes the trace of a training: an `rskip.vision.training.Observer`.

    A copy of the model has the iteration's own batch in training's mode: the model may be compiled, and a pass through
    it would change its statistics. Loss (nats) and the norm of the whole gradient are means over the batch; of several
    processes, over the first one's part of it.

    :param every: iterations from one line to the next.
    :param writes: whether this process writes the file. All take part: statistics may be those of all together.
    """

    def __init__(self, path: Path, *, every: int, writes: bool) -> None:
        self._path, self._every, self._writes = path, every, writes
        self._trace: Trace | None = None

    def __call__(
        self, iteration: int, model: nn.Module, loss_of: Callable[[nn.Module], Tensor], *, images: int
    ) -> None:
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
        figures = {"loss": float(loss.detach()) / images, "gradient_norm": float(torch.stack(norms).norm()) / images}
        if self._trace is not None:
            self._trace.add(iteration, recorder.rows(), **figures)
