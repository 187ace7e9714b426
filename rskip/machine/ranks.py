"""The processes (ranks) that torchrun started."""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, NoReturn, TypeVar

from rskip.machine.environment import number_in_environment
from rskip.machine.torch_errors import lost_rank

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Item = TypeVar("Item")

_MISTAKE = 2  # exit status for a user's mistake, which the first failing rank reports
_REPORTING_SECONDS = 1.0  # torchrun ends all processes when one ends


@dataclass(frozen=True)
class Ranks:
    """This process among those that torchrun started. Without torchrun it is the only one.

    rank: its number, from 0.
    count: the number of processes.
    local_rank: its number on this machine, from 0.
    """

    rank: int = 0
    count: int = 1
    local_rank: int = 0

    @classmethod
    def from_environment(cls) -> Ranks:
        """Reads torchrun's variables (RANK, WORLD_SIZE, LOCAL_RANK).

        :raises ValueError: a variable is not a number, or RANK is not below WORLD_SIZE.
        """
        count = number_in_environment("WORLD_SIZE", 1)
        if count <= 1:
            return cls()
        rank = number_in_environment("RANK", 0)
        if rank >= count:
            raise ValueError(f"RANK is {rank} and WORLD_SIZE {count} in the environment: expected a rank below {count}")
        return cls(rank, count, number_in_environment("LOCAL_RANK", 0))

    @property
    def first(self) -> bool:
        """Whether this process is the one that prints and writes shared files."""
        return self.rank == 0

    def share(self, items: Iterable[Item]) -> Iterator[Item]:
        """This rank's items: every `count`th one."""
        return islice(items, self.rank, None, self.count)

    @contextmanager
    def process_group(
        self,
        backend: str,
        *,
        device: torch.device | None = None,
        advice: str = "",
        timeout: timedelta | None = None,
    ) -> Iterator[None]:
        """Within the block the ranks form a process group of PyTorch's `backend`.

        An existing group is used and kept. (A second group under the same torchrun is not safe: it may read what the
        first one left in torchrun's store.)

        :param device: this process's GPU, which becomes the current device and which NCCL connects immediately; None:
            no GPU, or NCCL connects on first use.
        :param advice: the end of the error message if another rank stopped.
        :param timeout: how long ranks wait for each other; None: PyTorch's default (nccl: 10 minutes, others: 30).
        :raises ValueError: another rank stopped.
        """
        if self.count == 1:
            yield
            return
        import torch  # translation on a CPU works without it

        own = not torch.distributed.is_initialized()
        if own:
            if device is not None:
                torch.cuda.set_device(device)
            torch.distributed.init_process_group(backend, timeout=timeout, device_id=device)
        try:
            yield
        except RuntimeError as error:
            if lost_rank(error):
                raise ValueError(f"another process of this torchrun stopped: see its message{advice}") from error
            raise
        finally:
            if own:
                torch.distributed.destroy_process_group()

    def add_up(self, numbers: Sequence[int]) -> list[int]:
        """The sums of integers over all ranks, which all call this."""
        return list(numbers) if self.count == 1 else self.sum(_tensor(numbers)).tolist()

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum of a tensor over all ranks, which all call this. The tensor itself is not changed."""
        return self._reduce(tensor, "SUM")

    def min(self, tensor: Tensor) -> Tensor:
        """The minimum of a tensor over all ranks."""
        return self._reduce(tensor, "MIN")

    def max(self, tensor: Tensor) -> Tensor:
        """The maximum of a tensor over all ranks."""
        return self._reduce(tensor, "MAX")

    def _reduce(self, tensor: Tensor, operation: str) -> Tensor:
        reduced = tensor.clone()
        if self.count > 1:
            import torch

            torch.distributed.all_reduce(reduced, getattr(torch.distributed.ReduceOp, operation))
        return reduced

    def agree(self, text: str) -> bool:
        """Whether all ranks, which all call this, have the same text."""
        sums = _tensor([zlib.crc32(text.encode())])
        return bool(self.min(sums) == self.max(sums))

    def wait(self) -> None:
        """Waits until all ranks call this."""
        self.add_up([0])

    @contextmanager
    def together(self) -> Iterator[None]:
        """A block after which either all ranks continue or none: if one fails by a user's mistake, all end.

        The first failed rank raises its error. The others end silently, so that it is reported once.
        """
        if self.count == 1:
            yield
            return
        failure: ValueError | OSError | None = None
        try:
            yield
        except (ValueError, OSError) as error:
            failure = error
        first_failed = int(self.min(_tensor(self.count if failure is None else self.rank)))
        if first_failed == self.count:
            return
        if failure is not None and first_failed == self.rank:
            raise failure
        self.leave(_MISTAKE)

    def leave(self, status: int) -> NoReturn:
        """Ends this process silently, after a delay in which the rank with the error can report it."""
        time.sleep(_REPORTING_SECONDS)
        raise SystemExit(status)


def _tensor(values: int | Sequence[int]) -> Tensor:
    import torch

    return torch.tensor(values)
