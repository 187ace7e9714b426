"""Checks the tensors of a checkpoint, finds those that share memory, and converts their number format."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rskip.checkpoint.config_file import check_sum
from rskip.settings.errors import shown

# An uninitialised buffer of fairseq's sinusoidal positions, whose value is meaningless.
_MEANINGLESS = "._float_tensor"
# fairseq writes copies under these names if it trains on a GPU, or in bfloat16 or float16
_EMBEDDINGS = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "decoder.output_projection.weight")


def read_tensors(file: Any, sums: Mapping[str, int], *, path: Path) -> dict[str, Tensor]:
    """The tensors of a file that safetensors' `safe_open` has opened for PyTorch, in memory of their own.

    `get_tensor` maps the file: if another process changed it, the tensors would change too, or end this process.

    :param sums: checksums, see `rskip.checkpoint.config_file.sums_of`.
    """
    tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    for name in sums.keys() & tensors.keys():
        check_sum(sums, name, tensor_sum(tensors[name]), path=path)
    return tensors


def check_tensors(content: Mapping[Any, Any], *, source: str) -> dict[str, Tensor]:
    """Checks the content of a `Checkpoint.model` from the file `source`: tensors by their names."""
    for name, tensor in content.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise ValueError(f"{source} is not a checkpoint: its weights {shown(name)} are a {type(tensor).__name__}")
    return dict(content)


def tensor_sum(tensor: Tensor) -> int:
    """CRC-32 of the tensor's values."""
    return zlib.crc32(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)


def tied_names(model: Mapping[str, Tensor]) -> dict[str, str]:
    """Maps each name to an earlier name with the same tensor.

    Two names are tied if their tensors are the same view of the same memory. Embeddings are also tied if they are
    equal.
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
    """Converts floating-point tensors to `dtype`. Tied tensors stay tied."""
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
