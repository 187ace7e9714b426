"""`--probe-file FILE --probe-every N`: statistics of the residual blocks during fairseq-train.

Hooks record the update's own forward and backward passes. There is no additional pass, and no random number is drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import torch
from fairseq import metrics
from fairseq.distributed.utils import get_global_rank
from fairseq.logging.meters import Meter
from torch import nn

from fairseq_compat.one_line_errors import UsageError
from rskip.analysis.blocks import residual_blocks
from rskip.analysis.signals import Masks, SignalRecorder
from rskip.analysis.trace import Trace, due


class Probe(Protocol):
    """Receives a model's passes in training. The model sets `updates`, the number of finished updates."""

    updates: int

    def begin_batch(self, masks: Masks) -> None:
        """Called before a batch's forward pass. `masks`: see `SignalRecorder.recording`."""

    def end_backward(self) -> None:
        """Called after the backward pass of an update's last batch."""


class TrainingProbe:
    """Writes the trace of a training. With several processes the first one writes it, for its part of each update.

    fairseq's trainer calls the model's `set_num_updates` and `forward` for each batch of an update, and then
    `all_reduce_grads`.

    :param every: number of updates between two probes.
    """

    def __init__(self, model: nn.Module, file: Path, every: int) -> None:
        self._model, self._file, self._every = model, file, every
        self._trace: Trace | None = None
        self._recorder: SignalRecorder | None = None  # for the current update, if it is probed
        self._meters: Any = {}
        self._batch, self._update = ExitStack(), ExitStack()
        self._backward_done = False
        self._written = 0  # the last update that has a line
        self.updates = 0  # finished updates

    def begin_batch(self, masks: Masks) -> None:
        if get_global_rank() > 0:
            return
        if self._trace is None:
            if torch.is_autocast_enabled() or next(self._model.parameters()).dtype == torch.float16:
                raise UsageError("--probe-file doesn't work with --fp16 or --amp, which scale gradients: use --bf16")
            self._trace = Trace(self._file, done=self.updates)
        self._batch.close()
        if self._backward_done:  # the gradient was not finite: fairseq repeats the batches to locate it, then raises
            self._end_update()
        update = self.updates + 1
        if not due(update, every=self._every) or update == self._written:
            return
        if self._recorder is None:
            self._recorder = SignalRecorder(residual_blocks(self._model))
            # fairseq's log of this update; fairseq stops this clock at the end of the update
            self._meters = self._update.enter_context(metrics.aggregate())
            self._meters.add_meter("train_wall", _AtStop(self._end_update), 0)
        self._batch.enter_context(self._recorder.recording(masks))

    def end_backward(self) -> None:
        self._batch.close()
        self._backward_done = self._recorder is not None

    def _end_update(self) -> None:
        self._batch.close()
        self._update.close()
        assert self._trace is not None and self._recorder is not None
        names = {"loss": "loss", "gradient_norm": "gnorm"}
        found = {ours: float(self._meters[name].val) if name in self._meters else None for ours, name in names.items()}
        self._written = self.updates + 1
        self._trace.add(self._written, self._recorder.rows(), **found)
        self._recorder, self._backward_done = None, False


class _AtStop(Meter):
    """One of fairseq's clocks, which calls a function when it is stopped."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._function = function

    def stop(self, *_: object) -> None:
        self._function()
