"""Attention over depth on a GPU, forward and backward, by Triton, without a copy of the tensors attended to.

Numbers are float32 within the kernels (see `rskip.connections.triton_streams`). Per token and tensor of C features, C
elements pass through memory forward, and 3C backward, 4C if the tensor has a gradient of later readings.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from rskip.connections.norms import normalised_type
from rskip.connections.triton_streams import OPTIONS, _loaded, tile
from rskip.cpu.structures import constants

_PROGRAMS = 512  # share the tokens of a sum


@triton.jit(do_not_specialize=["tokens"])
def _attend(
    values, query, key_gain, gain, shift, x, scores, roots, totals, statistics, tokens, key_epsilon, epsilon,
    C: tl.constexpr, count: tl.constexpr, norm: tl.constexpr, centred: tl.constexpr, T: tl.constexpr, F: tl.constexpr,
):  # fmt: skip
    """norm(Σ_i p_i·v_i) of T tokens: one pass over the tensors, with the softmax's maximum and total so far."""
    t, c = (tl.program_id(0) * T + tl.arange(0, T)).to(tl.int64), tl.arange(0, F)
    here, at = t < tokens, t[:, None] * C + c[None, :]
    inside = here[:, None] & (c < C)[None, :]
    u = (_loaded(key_gain + c, c < C) * _loaded(query + c, c < C))[None, :]
    most, total = tl.full((T,), -float("inf"), tl.float32), tl.zeros((T,), tl.float32)
    s = tl.zeros((T, F), tl.float32)
    for i in tl.static_range(count):
        v = _loaded(values[i] + at, inside)
        root = tl.rsqrt(tl.sum(v * v, 1) / C + key_epsilon)
        score = root * tl.sum(v * u, 1)
        larger = tl.maximum(most, score)
        kept, new = tl.exp(most - larger), tl.exp(score - larger)
        s = s * kept[:, None] + new[:, None] * v
        total = total * kept + new
        most = larger
        tl.store(scores + t * count + i, score, mask=here)
        tl.store(roots + t * count + i, root, mask=here)
    tl.store(totals + t * 2, most, mask=here)
    tl.store(totals + t * 2 + 1, total, mask=here)
    s = s / total[:, None]
    if norm:
        mean = tl.zeros((T,), tl.float32)
        if centred:
            mean = tl.sum(s, 1) / C
        s = tl.where(inside, s - mean[:, None], 0.0)
        root = tl.rsqrt(tl.sum(s * s, 1) / C + epsilon)
        tl.store(statistics + t * 2, mean, mask=here)
        tl.store(statistics + t * 2 + 1, root, mask=here)
        s = s * root[:, None] * _loaded(gain + c, c < C)[None, :]
        if shift is not None:
            s += _loaded(shift + c, c < C)[None, :]
    tl.store(x + at, s.to(x.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["tokens", "blocks"])
def _attend_gradient(
    values, query, key_gain, gain, scores, roots, totals, statistics, of_x, of_values, gradients, partial, tokens,
    blocks, C: tl.constexpr, count: tl.constexpr, given: tl.constexpr, norm: tl.constexpr, centred: tl.constexpr,
    T: tl.constexpr, F: tl.constexpr, programs: tl.constexpr,
):  # fmt: skip
    """The gradients of the tensors, and of every `programs`-th block of T tokens the part of the sums over tokens: the
    gradients of key_gain·query, gain and shift. Bit i of `given` says whether tensor i has a gradient already."""
    c = tl.arange(0, F)
    u = (_loaded(key_gain + c, c < C) * _loaded(query + c, c < C))[None, :]
    of_u, of_gain, of_shift = tl.zeros((F,), tl.float32), tl.zeros((F,), tl.float32), tl.zeros((F,), tl.float32)
    for block in range(tl.program_id(0), blocks, programs):
        t = (block * T + tl.arange(0, T)).to(tl.int64)
        here, at = t < tokens, t[:, None] * C + c[None, :]
        inside = here[:, None] & (c < C)[None, :]
        d = _loaded(of_x + at, inside)
        most, total = tl.load(totals + t * 2, mask=here, other=0.0), tl.load(totals + t * 2 + 1, mask=here, other=1.0)
        s = tl.zeros((T, F), tl.float32)
        for i in tl.static_range(count):
            p = tl.exp(tl.load(scores + t * count + i, mask=here, other=0.0) - most) / total
            s += p[:, None] * _loaded(values[i] + at, inside)
        if norm:
            root = tl.load(statistics + t * 2 + 1, mask=here, other=0.0)[:, None]
            mean = tl.load(statistics + t * 2, mask=here, other=0.0)[:, None]
            normal = tl.where(inside, (s - mean) * root, 0.0)
            of_gain += tl.sum(d * normal, 0)
            of_shift += tl.sum(d, 0)
            d *= _loaded(gain + c, c < C)[None, :]
            along = tl.sum(d * normal, 1) / C
            if centred:
                d -= (tl.sum(d, 1) / C)[:, None]
            d = tl.where(inside, root * (d - along[:, None] * normal), 0.0)
        along_s = tl.sum(d * s, 1)
        for i in tl.static_range(count):
            v = _loaded(values[i] + at, inside)
            score = tl.load(scores + t * count + i, mask=here, other=0.0)
            root = tl.load(roots + t * count + i, mask=here, other=0.0)
            p = tl.exp(score - most) / total
            of_score = p * (tl.sum(v * d, 1) - along_s)
            of_product, of_square = of_score * root, -of_score * score * root * root / C
            of_u += tl.sum(of_product[:, None] * v, 0)
            y = p[:, None] * d + of_product[:, None] * u + of_square[:, None] * v
            if (given >> i) & 1:
                y += _loaded(of_values[i] + at, inside)
            tl.store(gradients[i] + at, y.to(gradients[i].dtype.element_ty), mask=inside)
    to = partial + tl.program_id(0) * 3 * C + c
    tl.store(to, of_u, mask=c < C)
    tl.store(to + C, of_gain, mask=c < C)
    tl.store(to + 2 * C, of_shift, mask=c < C)


def attend(
    settings: tuple[int, float, float], parameters: Sequence[Tensor | None], values: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    """x = norm(Σ_i p_i·v_i) and what `attend_gradient` needs.

    :param settings: kind and eps of the norm, and eps of the keys' norm.
    :param parameters: query, gain of the keys' norm, gain and shift of the norm.
    """
    norm, epsilon, key_epsilon = settings
    tokens, features, count = values[0].shape[:-1].numel(), values[0].size(-1), len(values)
    x = torch.empty_like(values[0], dtype=normalised_type(values[0]) if norm else None)
    kept = x.new_empty(tokens * (2 * count + 4), dtype=torch.float32)
    T, F, warps = tile(features)
    with torch.cuda.device_of(x):
        _attend[triton.cdiv(tokens, T),](
            tuple(values), *parameters, x, *_kept(kept, tokens, count), tokens, key_epsilon, epsilon, features, count,
            bool(norm), norm == constants.LAYER_NORM, T, F, num_warps=warps, **OPTIONS,
        )  # fmt: skip
    return x, kept


def _kept(kept: Tensor, tokens: int, count: int) -> Sequence[Tensor]:
    return kept.split([tokens * count, tokens * count, 2 * tokens, 2 * tokens])


def attend_gradient(
    settings: tuple[int, float, float], kept: Tensor, parameters: Sequence[Tensor | None], values: Sequence[Tensor],
    of_x: Tensor, given: Sequence[Tensor | None],
) -> tuple[list[Tensor | None], list[Tensor]]:  # fmt: skip
    """The gradients of the parameters and of the values, from those of x and, where not None, of the values."""
    (norm, *_), (query, key_gain, gain, _) = settings, parameters
    tokens, features, count = values[0].shape[:-1].numel(), values[0].size(-1), len(values)
    gradients = tuple(torch.empty_like(each) for each in values)
    T, F, warps = tile(features)
    blocks = triton.cdiv(tokens, T)
    programs = min(blocks, _PROGRAMS)
    partial = kept.new_empty(programs, 3, features)
    with torch.cuda.device_of(of_x):
        _attend_gradient[programs,](
            tuple(values), query, key_gain, gain, *_kept(kept, tokens, count), of_x,
            tuple(value if each is None else each for value, each in zip(values, given, strict=True)), gradients,
            partial, tokens, blocks, features, count, sum(1 << i for i, each in enumerate(given) if each is not None),
            bool(norm), norm == constants.LAYER_NORM, T, F, programs, num_warps=warps, **OPTIONS,
        )  # fmt: skip
    of_u, of_gain, of_shift = partial.sum(0)
    found = zip(parameters, [of_u * key_gain, of_u * query, of_gain, of_shift], strict=True)
    return [None if each is None else of_each.to(each.dtype) for each, of_each in found], [*gradients]
