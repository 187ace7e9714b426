"""The parts that tasks with their own training loop share: signals, processes, probes, checks of the weights."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from rskip.machine.device import gpu_of_its_own
from rskip.machine.ranks import Ranks
from rskip.tasks.loop_folder import LoopFolder

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Diverged(ValueError):
    """Raised if the loss or a weight is not finite. Earlier checkpoints stay."""


class OutputsNotFinite(ValueError):
    """Raised if the model's outputs are infinite or NaN, because its training diverged."""

    def __init__(self) -> None:
        super().__init__("the outputs of the model are not finite: its training diverged")


class Observer(Protocol):
    """Probes a training before every iteration. It must not change the training or draw random numbers."""

    def __call__(self, iteration: int, model: nn.Module, loss_of: Callable[[nn.Module], Tensor], *, count: int) -> None:
        """Probes the training. All processes call it.

        :param iteration: number of the next iteration, from 1.
        :param model: copy it before a forward pass, which changes its running statistics.
        :param loss_of: returns a copy's summed loss over this process's part of the batch, of `count` images
            or tokens.
        """


def check_shared(files: LoopFolder, iteration: int, ranks: Ranks) -> None:
    """:raises ValueError: ranks on other machines see another checkpoint, or none."""
    here = torch.tensor(iteration)
    least, most = int(ranks.min(here)), int(ranks.max(here))
    if least != most:
        raise ValueError(
            f"{files.checkpoint}: one process finds iteration {least:,}, another {most:,}: use a folder that "
            "all machines share"
        )


def process_group(ranks: Ranks, device: str | None) -> AbstractContextManager[None]:
    """Connects the ranks within the block: with gloo on CPUs, with nccl on GPUs.

    :param device: the argument of `choose_device`, which checks it later.
    :raises ValueError: another rank stopped.
    """
    gpus = device != "cpu" and torch.cuda.is_available()
    gpu = gpu_of_its_own(ranks) if gpus and device in (None, "cuda") else None
    backend = "cpu:gloo,cuda:nccl" if gpus else "gloo"
    return ranks.process_group(backend, device=gpu, advice="; repeat the command to resume from the last checkpoint")


class Interrupted(Exception):
    """Raised if a signal stopped a training, which was saved.

    :param status: the exit status for the shell: 143 for SIGTERM, 130 for SIGINT.
    """

    def __init__(self, number: int, *, iteration: int, checkpoint: Path) -> None:
        super().__init__(
            f"stopped by {signal.Signals(number).name} after {iteration:,} iterations, saved in {checkpoint}: "
            "repeat the command to resume"
        )
        self.status = 128 + number


class StopSignals:
    """Notes signals within the block, instead of ending the process.

    A second signal ends a single process. With several processes it does not, since torchrun forwards its signals, so
    each process receives a Ctrl-C twice.
    """

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._received = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def _note(self, number: int, _: FrameType | None) -> None:
        self._received = number
        if self._ranks.count == 1:
            self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def received(self) -> int:
        """The number of a signal that any rank received, or 0. It is the same on all ranks."""
        if self._ranks.count == 1:
            return self._received
        return int(self._ranks.max(torch.tensor(self._received)))


def largest_value(model: nn.Module) -> Tensor:
    """The largest absolute value of all parameters and buffers, or NaN if one is NaN."""
    floats = [tensor.detach() for tensor in model.state_dict().values() if tensor.is_floating_point()]
    return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(floats, math.inf)), math.inf)
