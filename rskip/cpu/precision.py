"""The number format of a model's computations at inference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import nn

from rskip.connections.linear import Linear, LinearMap
from rskip.cpu.library import find_library, library_for_int8
from rskip.cpu.linear import Int8Linear, PackedLinear, in_int8
from rskip.cpu.packing import FEWEST_INT8_WEIGHTS
from rskip.kernel_forms import PRECISIONS

Model = TypeVar("Model", bound=nn.Module)


def set_precision(model: Model, precision: str) -> Model:
    """Converts the model in place to compute in `precision`, only for inference. Returns the model.

    "float32" and "bfloat16" convert the whole model. "int8" converts only its larger linear maps, and needs the
    compiled kernels on a CPU. If the kernels are compiled, the weights of the other linear maps are packed for them.
    docs/speed.md lists gains and costs.

    :raises ValueError: the precision is unknown, the device or processor does not support it, or the model is already
        in int8, so its original weights are lost.
    """
    if precision not in PRECISIONS:
        raise ValueError(f"unknown precision {precision!r}: expected one of {', '.join(PRECISIONS)}")
    if precision != "int8" and in_int8(model):
        raise ValueError(f"the model is in int8 and can't be converted to {precision}: load it again")
    device = next(model.parameters()).device
    if precision == "int8":
        if device.type != "cpu":
            raise ValueError(f"int8 is for CPUs and the model is on {device}: use bfloat16 there")
        library_for_int8()
        # the large maps first, so that they are never in float32 all at once
        _replace_linears(model, (nn.Linear, Linear, LinearMap, PackedLinear), _in_int8)
        model.float()
    else:
        model.to(torch.bfloat16 if precision == "bfloat16" else torch.float32)
        if device.type == "cpu" and find_library().library is not None:
            _replace_linears(model, (nn.Linear, Linear, LinearMap), PackedLinear)
    return model.eval().requires_grad_(False)


def _in_int8(linear: nn.Linear | LinearMap) -> nn.Module:
    if linear.weight.numel() >= FEWEST_INT8_WEIGHTS:
        return Int8Linear(linear)
    return linear if isinstance(linear, PackedLinear) else PackedLinear(linear)


def _replace_linears(
    module: nn.Module, replaced: tuple[type[nn.Module], ...], kind: Callable[[Any], nn.Module]
) -> None:
    for name, child in module.named_children():
        if type(child) in replaced:
            setattr(module, name, kind(child))
        else:
            _replace_linears(child, replaced, kind)
