"""Tensors for the compiled kernels: which fit, and indices that have been checked."""

from __future__ import annotations

import torch

from rskip.cpu.library import Library, find_library
from rskip.cpu.structures import TYPES, address, kind_of


def native_library(tensor: torch.Tensor) -> Library | None:
    """The kernels, or None if they are missing or the tensor is not contiguous float32 or bfloat16 on a CPU."""
    suits = kind_of(tensor) in TYPES and tensor.device.type == "cpu" and tensor.is_contiguous()
    return find_library().library if suits else None


def checked_indices(library: Library, indices: torch.Tensor, count: int, what: str) -> torch.Tensor:
    """Converts indices for the kernels, to contiguous int64.

    :param what: name of the indices in errors.
    :raises TypeError: the indices are not integers on the CPU.
    :raises IndexError: an index is below 0, or not below `count`.
    """
    if not indices.is_cpu or indices.dtype == torch.bool or indices.is_floating_point() or indices.is_complex():
        raise TypeError(f"{what} are {indices.dtype} on {indices.device}: expected integers on the CPU")
    indices = indices.long().contiguous()
    if not library.all_below(address(indices), indices.numel(), count):
        outside = indices[(indices < 0) | (indices >= count)][0].item()
        raise IndexError(f"{what} include {outside}: expected 0 to {count - 1}")
    return indices
