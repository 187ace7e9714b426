"""Tied parameters: several names of one tensor, such as shared embeddings."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

# fairseq writes a copy under each of these names where it trains on a GPU, or in bfloat16 or float16
EMBEDDINGS = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "decoder.output_projection.weight")


def tied_names(model: Mapping[str, Tensor]) -> dict[str, str]:
    """Each name whose tensor an earlier name already has, to that earlier name, which is none of the keys.

    Two names are tied where their tensors are the same view of the same memory; embeddings also where they are equal.
    """
    first: dict[tuple[object, ...], str] = {}
    embeddings: list[str] = []
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
            continue
        first[view] = name
        if name in EMBEDDINGS:
            for earlier in embeddings:
                if tensor.dtype == model[earlier].dtype and torch.equal(tensor, model[earlier]):
                    tied[name] = first[view] = earlier
                    break
            else:
                embeddings.append(name)
    return tied
