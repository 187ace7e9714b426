"""Checkpoints that the training doesn't wait for: a copy of its tensors in one transfer, and a thread that writes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

import torch
from torch import Tensor

Name = TypeVar("Name", bound=Hashable)


class Snapshot(Generic[Name]):
    """Tensors of one device as they are now, on their way to the CPU: a copy and a transfer for each type of number.

    The tensors may change as soon as it is made. Where they are on a GPU nothing waits for it before `arrived`.
    """

    def __init__(self, tensors: Mapping[Name, Tensor]) -> None:
        dense = {name: _dense(tensor.detach()) for name, tensor in tensors.items()}
        self._layouts = {name: (each.dtype, each.size(), each.stride()) for name, each in dense.items()}
        self._packed: dict[torch.dtype, Tensor] = {}
        self._transfer: torch.cuda.Event | None = None
        for dtype in dict.fromkeys(each.dtype for each in dense.values()):
            flat = [each.as_strided((each.numel(),), (1,)) for each in dense.values() if each.dtype == dtype]
            packed = torch.cat(flat)
            if packed.is_cuda:
                host = torch.empty(packed.shape, dtype=dtype, pin_memory=True)
                packed = host.copy_(packed, non_blocking=True)
                self._transfer = torch.cuda.Event()
                self._transfer.record()
            self._packed[dtype] = packed

    def arrived(self) -> dict[Name, Tensor]:
        """The tensors, in memory of their own and in the layout that they had."""
        if self._transfer is not None:
            self._transfer.synchronize()
        begin = dict.fromkeys(self._packed, 0)
        tensors = {}
        for name, (dtype, size, stride) in self._layouts.items():
            part = self._packed[dtype][begin[dtype] : begin[dtype] + size.numel()]
            tensors[name] = part.clone().as_strided(size, stride)
            begin[dtype] += size.numel()
        return tensors


def _dense(tensor: Tensor) -> Tensor:
    """The tensor, or where its numbers don't lie side by side a copy whose do."""
    channels_last = tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last)
    return tensor if channels_last else tensor.contiguous()


class BackgroundWriter:
    """A thread that writes one thing at a time."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._written: Future[None] | None = None

    def start(self, write: Callable[[], None]) -> None:
        """Calls `write` in the thread, when what was begun before is done.

        :raises OSError: see `wait`.
        """
        self.wait()
        self._written = self._thread.submit(write)

    def wait(self) -> None:
        """Until what was begun is written.

        :raises OSError: it could not be, once.
        """
        written, self._written = self._written, None
        if written is not None:
            written.result()

    def close(self) -> None:
        """Until what was begun is written, or was not."""
        self._thread.shutdown()
