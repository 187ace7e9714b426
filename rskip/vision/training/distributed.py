"""The processes that torchrun started to train one model together."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NoReturn

import torch
import torch.distributed as distributed
from torch import Tensor

_MISTAKE = 2  # exit status of a user's mistake, which the first failing rank tells of
_TELLING_SECONDS = 1.0  # torchrun ends all processes when one has ended


@dataclass(frozen=True)
class Ranks:
    """This process among those that torchrun started; without torchrun, the only one.

    rank: its number, from 0.
    count: of the processes.
    local_rank: its number on this machine, from 0.
    """

    rank: int = 0
    count: int = 1
    local_rank: int = 0

    @classmethod
    def from_environment(cls) -> Ranks:
        """As torchrun's variables say (RANK, WORLD_SIZE, LOCAL_RANK)."""
        rank, count, local_rank = (int(os.environ.get(name, "0")) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
        return cls(rank, count, local_rank) if count > 1 else cls()

    @property
    def first(self) -> bool:
        """Whether this process is the one that writes files and prints."""
        return self.rank == 0

    @contextmanager
    def group(self, device: torch.device) -> Iterator[None]:
        """Within the block the ranks know each other: through gloo on CPUs, nccl on GPUs.

        A group that the program has already is used and left. (To begin a second one under the same torchrun is not
        safe: it may find what the first one left in torchrun's store.)

        :raises ValueError: another rank stopped.
        """
        if self.count == 1:
            yield
            return
        own = not distributed.is_initialized()
        if own:
            distributed.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
        try:
            yield
        except RuntimeError as error:
            if isinstance(error, distributed.DistError) or "gloo" in str(error).lower():
                raise ValueError(
                    "another process of this torchrun stopped, see its message; repeat the command to go on "
                    "from the last checkpoint"
                ) from error
            raise
        finally:
            if own:
                distributed.destroy_process_group()

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
