"""Probes an image model during training."""

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
    """Writes the trace of a training; an `rskip.vision.training.Observer`.

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
