"""The processes that torchrun started."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

Self = TypeVar("Self", bound="Ranks")


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
    def from_environment(cls: type[Self]) -> Self:
        """As torchrun's variables say (RANK, WORLD_SIZE, LOCAL_RANK)."""
        rank, count, local_rank = (int(os.environ.get(name, "0")) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
        return cls(rank, count, local_rank) if count > 1 else cls()

    @property
    def first(self) -> bool:
        """Whether this process is the one that writes what is written once, and prints."""
        return self.rank == 0

    @contextmanager
    def process_group(self, backend: str, *, advice: str = "", timeout: timedelta | None = None) -> Iterator[None]:
        """Within the block the ranks know each other, through PyTorch's `backend`.

        A group that the program has already is used and left. (To begin a second one under the same torchrun is not
        safe: it may find what the first one left in torchrun's store.)

        :param advice: the end of the message where another rank stopped.
        :param timeout: how long ranks wait for each other; None: PyTorch's default.
        :raises ValueError: another rank stopped.
        """
        if self.count == 1:
            yield
            return
        import torch.distributed as distributed

        own = not distributed.is_initialized()
        if own:
            distributed.init_process_group(backend, timeout=timeout)
        try:
            yield
        except RuntimeError as error:
            if isinstance(error, distributed.DistError) or "gloo" in str(error).lower():
                raise ValueError(f"another process of this torchrun stopped, see its message{advice}") from error
            raise
        finally:
            if own:
                distributed.destroy_process_group()
