"""Attention over depth with one kernel, forward and backward, without a copy of the tensors attended to."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_void_p
from typing import Any

import torch
from torch import Tensor

from rskip.connections.stream_kernels import Kernels, Norm, TritonKernels, address, check_first_order, in_groups
from rskip.cpu.structures import Attending


def attend(
    library: Kernels, norm: Norm, query: Tensor, key_norm: Norm, values: tuple[Tensor, ...]
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """norm(Σ_i p_i·v_i) (..., C) with p = softmax_i(query·key_norm(v_i)), and the values v for later readings.

    Readings of those add their gradients to the values' within the kernel, where autograd would add tensors.
    """
    values = tuple(each.contiguous() for each in values)
    settings, parameters = (norm[0], norm[1], key_norm[1]), (query, key_norm[2], *norm[2:])
    if torch.is_grad_enabled():
        x, *values_again = _Attend.apply(library, settings, *parameters, *values)
        return x, tuple(values_again)
    return _attend(library, settings, parameters, values)[0], values


def _arguments(
    settings: tuple[int, float, float],
    kept: Tensor,
    x: Tensor | None,
    parameters: Sequence[Tensor | None],
    values: Sequence[Tensor],
    gradients: Sequence[int | None] = (None,) * 7,
) -> Attending:
    """The kernels' arguments; `gradients` are those of x and, to be found, of the values and the parameters."""
    tokens, count = values[0].shape[:-1].numel(), len(values)
    of_kept = [kept.data_ptr() + 4 * number * in_groups(tokens) * count for number in range(4)]
    norm, epsilon, key_epsilon = settings
    arguments = Attending(
        None, *map(address, parameters), address(x), *of_kept, *gradients, None, None,
        tokens, count, values[0].size(-1), norm, 0, key_epsilon, epsilon,
    )  # fmt: skip
    _point(arguments, "values", values)
    return arguments


def _point(arguments: Attending, name: str, tensors: Sequence[Tensor | None]) -> None:
    """Makes a pointer point to the tensors' addresses; both live as long as the arguments."""
    table = (c_void_p * len(tensors))(*map(address, tensors))
    table.kept = tensors  # type: ignore[attr-defined]
    arguments.point(name, table)


def _attend(
    library: Kernels, settings: Any, parameters: Sequence[Tensor | None], values: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    if isinstance(library, TritonKernels):
        return library.depth.attend(settings, parameters, values)
    x = torch.empty_like(values[0])
    tokens = x.shape[:-1].numel()
    kept = x.new_empty(in_groups(tokens) * (3 * len(values) + 2))
    arguments = _arguments(settings, kept, x, parameters, values)
    library.attend_depth(arguments, tokens, work=2 * x.numel() * len(values))
    return x, kept


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, library: Kernels, settings: Any, *tensors: Any) -> tuple[Tensor, ...]:
        x, kept = _attend(library, settings, tensors[:4], tensors[4:])
        ctx.library, ctx.settings = library, settings
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(kept, *tensors)
        return x, *tensors[4:]

    @staticmethod
    def backward(ctx: Any, of_x: Tensor | None, *of_values: Tensor | None) -> tuple[Any, ...]:
        kept, *tensors = ctx.saved_tensors
        parameters, values = tensors[:4], tensors[4:]
        if of_x is None:
            return *[None] * 6, *of_values
        check_first_order()
        of_x, given = of_x.contiguous(), [None if each is None else each.contiguous() for each in of_values]
        if isinstance(ctx.library, TritonKernels):
            found, gradients = ctx.library.depth.attend_gradient(ctx.settings, kept, parameters, values, of_x, given)
            return None, None, *found, *gradients
        gradients = of_x.new_empty((len(values), *of_x.shape))
        sizes = [0 if each is None else each.numel() for each in parameters]
        parts = of_x.new_empty(sum(sizes)).split(sizes)
        found = [None if each is None else part for each, part in zip(parameters, parts, strict=True)]
        places = (of_x.data_ptr(), None, gradients.data_ptr(), *map(address, found))
        arguments = _arguments(ctx.settings, kept, None, parameters, values, places)
        _point(arguments, "of_values", given)
        ctx.library.attend_depth_gradient(arguments, of_x.shape[:-1].numel(), work=4 * gradients.numel())
        return None, None, *found, *gradients.unbind()
