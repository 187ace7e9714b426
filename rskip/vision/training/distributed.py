"""The processes that torchrun started to train one model together."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NoReturn

import torch
import torch.distributed as distributed
from torch import Tensor

from rskip.machine import ranks as machine

_MISTAKE = 2  # exit status of a user's mistake, which the first failing rank tells of
_TELLING_SECONDS = 1.0  # torchrun ends all processes when one has ended


class Ranks(machine.Ranks):
    """This process among those that train."""

    def group(self, device: str | None) -> AbstractContextManager[None]:
        """Within the block the ranks know each other: through gloo on CPUs, nccl on GPUs.

        :param device: as `choose_device` takes it, which may still refuse it.
        :raises ValueError: another rank stopped.
        """
        backend = "cpu:gloo,cuda:nccl" if device != "cpu" and torch.cuda.is_available() else "gloo"
        return self.process_group(backend, advice="; repeat the command to go on from the last checkpoint")

    def sum(self, tensor: Tensor) -> Tensor:
        """The ranks' sum of a tensor, when all ranks are here; the tensor itself stays as it is."""
        return self._reduce(tensor, distributed.ReduceOp.SUM)

    def min(self, tensor: Tensor) -> Tensor:
        """The ranks' minimum of a tensor, likewise."""
        return self._reduce(tensor, distributed.ReduceOp.MIN)

    def max(self, tensor: Tensor) -> Tensor:
        """The ranks' maximum of a tensor, likewise."""
        return self._reduce(tensor, distributed.ReduceOp.MAX)

    def _reduce(self, tensor: Tensor, operation: distributed.ReduceOp.RedOpType) -> Tensor:
        reduced = tensor.clone()
        if self.count > 1:
            distributed.all_reduce(reduced, operation)
        return reduced

    @contextmanager
    def together(self) -> Iterator[None]:
        """A block after which all ranks go on or none: where one fails by a user's mistake, all end.

        The first rank that failed raises its error; the others end without a word, so it is told once.
        """
        failure: ValueError | OSError | None = None
        try:
            yield
        except (ValueError, OSError) as error:
            if self.count == 1:
                raise
            failure = error
        first_failed = int(self.min(torch.tensor(self.count if failure is None else self.rank)))
        if first_failed == self.count:
            return
        if failure is not None and first_failed == self.rank:
            raise failure
        self.leave(_MISTAKE)

    def leave(self, status: int) -> NoReturn:
        """Ends this process without a word, when the rank that tells why has had time to do so."""
        time.sleep(_TELLING_SECONDS)
        raise SystemExit(status)
