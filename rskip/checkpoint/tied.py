"""Tied parameters: several names of one tensor, such as shared embeddings."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor


def tied_names(model: Mapping[str, Tensor]) -> dict[str, str]:
    """Each name whose tensor an earlier name already has, to that earlier name.

    Two names are tied where their tensors are the same view of the same memory.
    """
    first: dict[tuple[object, ...], str] = {}
    tied: dict[str, str] = {}
    for name, tensor in model.items():
        if tensor.numel() == 0:
            continue
        view = (
            tensor.untyped_storage().data_ptr(),
            tensor.storage_offset(),
            tensor.dtype,
            tensor.shape,
            tensor.stride(),
        )
        if view in first:
            tied[name] = first[view]
        else:
            first[view] = name
    return tied
