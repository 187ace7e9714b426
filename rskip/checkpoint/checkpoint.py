"""What a checkpoint holds, whatever file it came from, and which of its parameters are names of one tensor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

# fairseq's sinusoidal positions keep an uninitialised buffer whose value means nothing.
_MEANINGLESS = "._float_tensor"
# fairseq writes a copy under each of these names where it trains on a GPU, or in bfloat16 or float16
_EMBEDDINGS = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "decoder.output_projection.weight")


@dataclass(kw_only=True)
class Checkpoint:
    """A model's tensors and what is needed to build the model again.

    model: fairseq's parameter names to tensors. Tied parameters are names of one tensor.
    config: `arch`, `task`, `source_lang`, `target_lang` (the languages are None where fairseq guessed them
        from the data folder) and `model`, the model's settings under fairseq's names. Plain JSON values.
    averaged_from: file names of the checkpoints that this is the average of; empty for one from training.
    fairseq_state: everything else that fairseq's own file held, apart from the optimiser's state; None where
        the checkpoint came from somewhere else. A .pt file is written from it: there it overrides `config`.
    """

    model: dict[str, Tensor]
    config: dict[str, Any]
    averaged_from: tuple[str, ...] = ()
    fairseq_state: dict[str, Any] | None = None


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
        if name in _EMBEDDINGS:
            for earlier in embeddings:
                if tensor.dtype == model[earlier].dtype and torch.equal(tensor, model[earlier]):
                    tied[name] = first[view] = earlier
                    break
            else:
                embeddings.append(name)
    return tied


def cast_floats(model: dict[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    """Floating-point tensors in `dtype`, others as they are; tied tensors stay tied.

    :raises ValueError: a finite value is out of the range of `dtype`.
    """
    tied = tied_names(model)
    cast: dict[str, Tensor] = {}
    for name, tensor in model.items():
        if name in tied:
            cast[name] = cast[tied[name]]
            continue
        result = tensor.to(dtype) if tensor.is_floating_point() else tensor
        if not name.endswith(_MEANINGLESS) and bool((result.isinf() & ~tensor.isinf()).any()):
            short = str(dtype).removeprefix("torch.")
            raise ValueError(
                f"{name!r} holds {tensor.abs().max().item():g}, out of the range of {short}: "
                "store it as bfloat16 or float32"
            )
        cast[name] = result
    return cast
