"""Reading and writing of streams on a GPU, forward and backward, by Triton (rskip/cpu/source/streams.h on a CPU).

Tensors are float32, bfloat16 or float16, and the kernels compute in float32. They convert each value after loading it,
because Triton's interpreter computes bfloat16 wrongly. No result depends on the order of programs: each one stores its
part of a sum over tokens, and then the parts are added in their order.

Elements that pass through memory per token, for n streams of C features (without the branch's own):

    read            _weigh nC, _mix_inputs (n + 1)C
    write           _write_tokens (2n + 1)C                              forward: (4n + 2)C, 18C for n = 4
    write_gradient  _write_gradient (n + 2)C
    read_gradient   _weights_gradient (2n + 1)C, _streams_gradient (3n + 1)C   backward: (6n + 4)C, 28C for n = 4
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from rskip.connections.norms import normalised_type
from rskip.connections.stream_kernels import MANIFOLD, Parameters, Reads
from rskip.cpu.structures import constants

PRECISION = "ieee" if torch.version.hip else "tf32x3"  # of products of float32
OPTIONS = {"enable_fp_fusion": True}  # without it, Triton warns that its default will change
_PROGRAMS = 512  # share the columns and the tokens of a sum over tokens
_LAYER_NORM = constants.LAYER_NORM

# In the kernels n, q, C, p and width are those of `Reads`, t numbers tokens, j and k streams, o values, c features.


@triton.jit
def _loaded(pointer, mask):
    wide = pointer + tl.where(mask, 0, 0)  # Triton 3.4 does not widen a pointer to its mask
    return tl.load(wide, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def _tanh(x):
    e = tl.exp(-2 * tl.abs(x))
    return tl.where(x < 0, e - 1, 1 - e) / (1 + e)


@triton.jit
def _weight(weight, weight2, o, j, c, n: tl.constexpr, C: tl.constexpr, p: tl.constexpr, manifold: tl.constexpr):
    """What value o takes of feature c of stream j, before the gain of the rows' norm."""
    inside = (o < p) & (c < C)
    if manifold:
        return _loaded(weight + o * (n * C) + j * C + c, inside)
    else:
        first = _loaded(weight + c * (p - 1) + o, inside & (o < p - 1))
        return first + _loaded(weight2 + c + 0 * o, inside & (o == p - 1))


@triton.jit
def _logit(values, scale, bias, t, o, inside, p: tl.constexpr):
    return tl.load(scale).to(tl.float32) * _loaded(values + t * p + o, inside) + _loaded(bias + o, inside)


@triton.jit
def _softmax(w):
    w = tl.exp(w - tl.max(w, -1, keep_dims=True))
    return w / tl.sum(w, -1, keep_dims=True)


@triton.jit
def _balanced(w, epsilon, iterations: tl.constexpr, lines, step, inside, keep: tl.constexpr):
    """Sinkhorn's divisions of w (BT, n, n), whose rows are divided already. `lines` receives the divisors if `keep`."""
    w = w + epsilon
    for i in range(2 * iterations - 1):
        if i % 2 == 0:
            divisors = tl.sum(w, 1) + epsilon
            w = w / divisors[:, None, :]
        else:
            divisors = tl.sum(w, 2) + epsilon
            w = w / divisors[:, :, None]
        if keep:
            tl.store(lines + i * step, divisors, mask=inside)
    return w


@triton.jit
def _balanced_gradient(g, w, iterations: tl.constexpr, lines, step, inside):
    """The gradient of what `_balanced` took, from that of w, which it gave. w is divided back on the way."""
    for back in range(2 * iterations - 1):
        i = 2 * iterations - 2 - back
        divisors = tl.load(lines + i * step, mask=inside, other=1.0)
        if i % 2 == 0:
            g = g / divisors[:, None, :]
            g -= tl.sum(g * w, 1)[:, None, :]
            w *= divisors[:, None, :]
        else:
            g = g / divisors[:, :, None]
            g -= tl.sum(g * w, 2)[:, :, None]
            w *= divisors[:, :, None]
    return g


@triton.jit
def _permutations(matrices, m, i, p: tl.constexpr, n: tl.constexpr):
    """Entry i of each permutation m."""
    return _loaded(matrices + m * (n * n) + i, (m < p - 2 * n) & (i < n * n))


@triton.jit
def _place(j, o, width: tl.constexpr, n: tl.constexpr, q: tl.constexpr):
    """Where weight o of stream j lies in a row of `mix`: α (n, q), R (n, n) unless it is the identity, β (n)."""
    return tl.where(o < q, j * q + o, tl.where(o < q + n, n * q + j * n + o - q, width - n + j))


@triton.jit(do_not_specialize=["tokens"])
def _weigh(
    h, weight, weight2, row_gain, row_shift, scale, scale2, bias, matrices, alpha, residual, beta,
    mix, values, row_statistics, folds, tokens, token, stream, alpha_row, residual_row,
    row_epsilon, alpha_epsilon, beta_epsilon, magnitude, epsilon,
    n: tl.constexpr, q: tl.constexpr, C: tl.constexpr, p: tl.constexpr, width: tl.constexpr, manifold: tl.constexpr,
    centred: tl.constexpr, iterations: tl.constexpr,
    BT: tl.constexpr, BC: tl.constexpr, P: tl.constexpr, L: tl.constexpr, E: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """The weights of BT rows in `mix`; `folds` receives Σ_c w_oc and what the rows' shift adds to value o."""
    per_token: tl.constexpr = 1 if manifold else n
    segments: tl.constexpr = n if manifold else 1
    row = (tl.program_id(0) * BT + tl.arange(0, BT)).to(tl.int64)
    here = row < tokens * per_token
    start = h + row // per_token * token + row % per_token * stream
    o = tl.arange(0, P)
    values_of = values + row[:, None] * p + o[None, :]
    products = tl.zeros((BT, P), tl.float32)
    total, square = tl.zeros((BT,), tl.float32), tl.zeros((BT,), tl.float32)
    sums, shifts = tl.zeros((P,), tl.float32), tl.zeros((P,), tl.float32)
    pivot = tl.zeros((BT,), tl.float32)  # sums of differences from a row's first value lose fewer digits
    if centred:
        pivot = _loaded(start, here)
    for s in range(segments):
        for first in range(0, C, BC):
            c = first + tl.arange(0, BC)
            inside = here[:, None] & (c < C)[None, :]
            x = tl.where(inside, _loaded(start[:, None] + s * stream + c[None, :], inside) - pivot[:, None], 0.0)
            w = _weight(weight, weight2, o[:, None], s, c[None, :], n, C, p, manifold)
            if not manifold:
                if row_shift is not None:
                    shifts += tl.sum(w * _loaded(row_shift + c, c < C)[None, :], 1)
                w *= _loaded(row_gain + c, c < C)[None, :]
                sums += tl.sum(w, 1)
            total += tl.sum(x, 1)
            square += tl.sum(x * x, 1)
            products = tl.dot(x, tl.trans(w), products, input_precision=precision)
    count: tl.constexpr = segments * C
    mean = total / count
    if not centred:
        mean = tl.zeros((BT,), tl.float32)
    root = tl.rsqrt(square / count - mean * mean + row_epsilon)
    found = root[:, None] * (products - mean[:, None] * sums[None, :]) + shifts[None, :]
    tl.store(values_of, found, mask=here[:, None] & (o < p)[None, :])
    tl.store(row_statistics + row * 2, pivot + mean, mask=here)
    tl.store(row_statistics + row * 2 + 1, root, mask=here)
    if not manifold:
        if tl.program_id(0) == 0:
            tl.store(folds + o, sums, mask=o < p)
            tl.store(folds + p + o, shifts, mask=o < p)
        j = (row % n)[:, None]
        inside = here[:, None] & (o < p)[None, :]
        o = o[None, :]
        first_value = _loaded(alpha + j * alpha_row + o, inside & (o < q))
        first_value += _loaded(residual + j * residual_row + o - q, inside & (o >= q) & (o < q + n))
        first_value += _loaded(beta + j + 0 * o, inside & (o == q + n))
        factor = tl.where(o < p - 1, tl.load(scale).to(tl.float32), tl.load(scale2).to(tl.float32))
        to = mix + (row // n)[:, None] * width + _place(j, o, width, n, q)
        tl.store(to, first_value + factor * _tanh(found), mask=inside)
    else:
        tl.debug_barrier()  # other threads stored the values
        k = tl.arange(0, n)
        T, inside = row[:, None], here[:, None] & (k >= 0)[None, :]
        of_row = mix + T * width
        u = _logit(values, scale, bias, T, k[None, :], inside, p)
        v = _logit(values, scale + 1, bias, T, n + k[None, :], inside, p)
        tl.store(of_row + k[None, :], tl.sigmoid(u) + alpha_epsilon, mask=inside)
        tl.store(of_row + width - n + k[None, :], magnitude * tl.sigmoid(v) + beta_epsilon, mask=inside)
        if p > 2 * n:
            if matrices is None:
                i = k[:, None] * n + k[None, :]
                every = here[:, None, None] & (i >= 0)[None, :, :]
                w = _logit(values, scale + 2, bias, row[:, None, None], 2 * n + i[None, :, :], every, p)
                w = _balanced(_softmax(w), epsilon, iterations, mix, 0, inside, False)
                tl.store(mix + row[:, None, None] * width + n + i[None, :, :], w, mask=every)
            else:
                m, i = tl.arange(0, L), tl.arange(0, E)
                inside = here[:, None] & (m < p - 2 * n)[None, :]
                w = _logit(values, scale + 2, bias, T, 2 * n + m[None, :], inside, p)
                w = _softmax(tl.where((m < p - 2 * n)[None, :], w, -float("inf")))
                w = tl.dot(w, _permutations(matrices, m[:, None], i[None, :], p, n), input_precision=precision)
                tl.store(of_row + n + i[None, :], w, mask=here[:, None] & (i < n * n)[None, :])


@triton.jit
def _mixed(h, mix, t, c, token, stream, inside, n: tl.constexpr, q: tl.constexpr, C: tl.constexpr,
           width: tl.constexpr, T: tl.constexpr, F: tl.constexpr):  # fmt: skip
    """Σ_j α_jk·h_j (T, q, F)."""
    s = tl.zeros((T, q, F), tl.float32)
    k = tl.arange(0, q)
    for j in range(n):
        a = tl.load(mix + t[:, None] * width + j * q + k[None, :], mask=inside[:, None] & (k >= 0)[None, :], other=0.0)
        of_h = _loaded(h + t[:, None] * token + j * stream + c[None, :], inside[:, None] & (c < C)[None, :])
        s += a[:, :, None] * of_h[:, None, :]
    return s


@triton.jit(do_not_specialize=["tokens"])
def _mix_inputs(
    h, mix, gain, shift, x, statistics, tokens, token, stream, epsilon, n: tl.constexpr, q: tl.constexpr,
    C: tl.constexpr, width: tl.constexpr, norm: tl.constexpr, centred: tl.constexpr, T: tl.constexpr, F: tl.constexpr,
):  # fmt: skip
    """The branch's input norm(Σ_j α_j·h_j) of T tokens; F is at least C."""
    t = (tl.program_id(0) * T + tl.arange(0, T)).to(tl.int64)
    c, k, here = tl.arange(0, F), tl.arange(0, q), t < tokens
    feature = k[:, None] * C + c[None, :]
    inside = (feature >= 0) & (c < C)[None, :]
    s = _mixed(h, mix, t, c, token, stream, here, n, q, C, width, T, F)
    if norm:
        mean = tl.zeros((T,), tl.float32)
        if centred:
            mean = tl.sum(tl.sum(s, 2), 1) / (q * C)
        s = tl.where(inside[None, :, :], s - mean[:, None, None], 0.0)
        root = tl.rsqrt(tl.sum(tl.sum(s * s, 2), 1) / (q * C) + epsilon)
        tl.store(statistics + t * 2, mean, mask=here)
        tl.store(statistics + t * 2 + 1, root, mask=here)
        s = s * root[:, None, None] * _loaded(gain + feature, inside)[None, :, :]
        if shift is not None:
            s += _loaded(shift + feature, inside)[None, :, :]
    to = x + t[:, None, None] * (q * C) + feature[None, :, :]
    tl.store(to, s.to(x.dtype.element_ty), mask=here[:, None, None] & inside[None, :, :])


@triton.jit(do_not_specialize=["tokens"])
def _write_tokens(
    h, mix, f, output, tokens, token, stream, n: tl.constexpr, q: tl.constexpr, C: tl.constexpr, width: tl.constexpr,
    BT: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """h_k ← Σ_j R_jk·h_j + β_k·f_k for BC features of BT tokens."""
    t = (tl.program_id(0) * BT + tl.arange(0, BT)).to(tl.int64)
    c, k, here = tl.program_id(1) * BC + tl.arange(0, BC), tl.arange(0, n), t < tokens
    inside = here[:, None] & (c < C)[None, :]
    every = inside[:, None, :] & (k >= 0)[None, :, None]
    of_k, row = here[:, None] & (k >= 0)[None, :], mix + t[:, None] * width + k[None, :]
    beta = tl.load(row + width - n, mask=of_k, other=0.0)
    part = k * (0 if q == 1 else 1)
    y = beta[:, :, None] * _loaded(f + t[:, None, None] * (q * C) + part[None, :, None] * C + c[None, None, :], every)
    if width == n * q + n:
        y += _loaded(h + t[:, None, None] * token + k[None, :, None] * stream + c[None, None, :], every)
    else:
        for j in tl.static_range(n):
            r = tl.load(row + n * q + j * n, mask=of_k, other=0.0)
            y += r[:, :, None] * _loaded(h + t[:, None] * token + j * stream + c[None, :], inside)[:, None, :]
    to = output + t[:, None, None] * (n * C) + k[None, :, None] * C + c[None, None, :]
    tl.store(to, y.to(output.dtype.element_ty), mask=every)


@triton.jit(do_not_specialize=["tokens"])
def _write_gradient(
    g, mix, f, of_mix, of_f, tokens, token, stream, n: tl.constexpr, q: tl.constexpr, C: tl.constexpr,
    width: tl.constexpr, T: tl.constexpr, F: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    """The gradients of f and β of T tokens, from that of the output; zeros for α and R."""
    t = (tl.program_id(0) * T + tl.arange(0, T)).to(tl.int64)
    c, i, here = tl.arange(0, F), tl.arange(0, W), t < tokens
    inside = here[:, None] & (c < C)[None, :]
    zeros = tl.zeros((T, W), tl.float32)
    tl.store(of_mix + t[:, None] * width + i[None, :], zeros, mask=here[:, None] & (i < width - n)[None, :])
    total = tl.zeros((T, F), tl.float32)
    for k in range(n):
        place = t[:, None] * (q * C) + (k * C if q > 1 else 0) + c[None, :]
        of_k = _loaded(g + t[:, None] * token + k * stream + c[None, :], inside)
        beta = tl.load(mix + t * width + width - n + k, mask=here, other=0.0)
        tl.store(of_mix + t * width + width - n + k, tl.sum(of_k * _loaded(f + place, inside), 1), mask=here)
        if q > 1:
            tl.store(of_f + place, (beta[:, None] * of_k).to(of_f.dtype.element_ty), mask=inside)
        else:
            total += beta[:, None] * of_k
    if q == 1:
        tl.store(of_f + t[:, None] * C + c[None, :], total.to(of_f.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["tokens"])
def _weights_gradient(
    h, mix, gain, statistics, of_x, of_beta, g, of_mix, marks, tokens, token, stream, g_token, g_stream,
    n: tl.constexpr, q: tl.constexpr, C: tl.constexpr, width: tl.constexpr, norm: tl.constexpr, centred: tl.constexpr,
    T: tl.constexpr, F: tl.constexpr,
):  # fmt: skip
    """The gradients of α, R and β of T tokens, and in `marks` two means that the gradient of the norm needs."""
    t = (tl.program_id(0) * T + tl.arange(0, T)).to(tl.int64)
    c, k, here = tl.arange(0, F), tl.arange(0, q), t < tokens
    feature = k[:, None] * C + c[None, :]
    inside = (feature >= 0) & (c < C)[None, :]
    d = _loaded(of_x + t[:, None, None] * (q * C) + feature[None, :, :], here[:, None, None] & inside[None, :, :])
    mean = tl.zeros((T,), tl.float32)
    if norm:
        mean = tl.load(statistics + t * 2, mask=here, other=0.0)
        root = tl.load(statistics + t * 2 + 1, mask=here, other=0.0)
        s = _mixed(h, mix, t, c, token, stream, here, n, q, C, width, T, F)
        s = tl.where(inside[None, :, :], s - mean[:, None, None], 0.0) * root[:, None, None]
        d *= _loaded(gain + feature, inside)[None, :, :]
        along = tl.sum(tl.sum(d * s, 2), 1) / (q * C)
        of_mean = tl.zeros((T,), tl.float32)
        if centred:
            of_mean = tl.sum(tl.sum(d, 2), 1) / (q * C)
        tl.store(marks + t * 2, of_mean, mask=here)
        tl.store(marks + t * 2 + 1, along, mask=here)
        d = root[:, None, None] * (d - of_mean[:, None, None] - along[:, None, None] * s)
        d = tl.where(inside[None, :, :], d, 0.0)
    at = here[:, None] & (c < C)[None, :]
    of_k = here[:, None] & (k >= 0)[None, :]
    for j in range(n):  # not unrolled, since compiling would take long
        of_h = _loaded(h + t[:, None] * token + j * stream + c[None, :], at)
        to = of_mix + t * width
        tl.store(to[:, None] + j * q + k[None, :], tl.sum(d * of_h[:, None, :], 2), mask=of_k)
        if width > n * q + n:
            for i in tl.static_range(n):
                product = tl.zeros((T,), tl.float32)
                if g is not None:
                    product = tl.sum(of_h * _loaded(g + t[:, None] * g_token + i * g_stream + c[None, :], at), 1)
                tl.store(to + n * q + j * n + i, product, mask=here)
        product = tl.zeros((T,), tl.float32)
        if of_beta is not None:
            product = tl.load(of_beta + t * width + width - n + j, mask=here, other=0.0)
        tl.store(to + width - n + j, product, mask=here)


@triton.jit
def _put(g, values, scale, root, of_values, sums, number, row, o, here, p: tl.constexpr):
    """Stores what the gradient g of logits o (BT, O) gives the values, times `root`; adds g to `sums` and its product
    with the values as number `number` behind it. Returns Σ_o of the values' gradients times the values."""
    inside = here[:, None] & (o < p)[None, :]
    value = tl.load(values + row[:, None] * p + o[None, :], mask=inside, other=0.0)
    of_value = tl.load(scale + number).to(tl.float32) * g
    tl.store(of_values + row[:, None] * p + o[None, :], root[:, None] * of_value, mask=inside)
    tl.store(sums + o, tl.sum(g, 0), mask=o < p)
    tl.store(sums + p + number, tl.sum(tl.sum(g * value, 1), 0))
    return tl.sum(of_value * value, 1)


@triton.jit(do_not_specialize=["tokens"])
def _values_gradient(
    of_mix, values, row_statistics, folds, scale, scale2, bias, matrices, of_values, row_marks, lines, sums, tokens,
    magnitude, epsilon, n: tl.constexpr, q: tl.constexpr, C: tl.constexpr, p: tl.constexpr, width: tl.constexpr,
    manifold: tl.constexpr, iterations: tl.constexpr, SUMS: tl.constexpr,
    BT: tl.constexpr, P: tl.constexpr, L: tl.constexpr, E: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """From the gradients of the weights of BT rows, those of the values times 1/deviation, two means of each row that
    the gradient of the rows' norm needs, and this program's part of the sums over tokens."""
    row = (tl.program_id(0) * BT + tl.arange(0, BT)).to(tl.int64)
    sums += tl.program_id(0) * SUMS
    root = tl.load(row_statistics + row * 2 + 1, mask=row < tokens * (1 if manifold else n), other=0.0)
    if manifold:
        here = row < tokens
        k = tl.arange(0, n)
        T, inside = row[:, None], here[:, None] & (k >= 0)[None, :]
        read = tl.sigmoid(_logit(values, scale, bias, T, k[None, :], inside, p))
        g = tl.load(of_mix + T * width + k[None, :], mask=inside, other=0.0) * read * (1 - read)
        along = _put(g, values, scale, root, of_values, sums, 0, row, k, here, p)
        added = tl.sigmoid(_logit(values, scale + 1, bias, T, n + k[None, :], inside, p))
        g = tl.load(of_mix + T * width + width - n + k[None, :], mask=inside, other=0.0)
        along += _put(g * magnitude * added * (1 - added), values, scale, root, of_values, sums, 1, row, n + k, here, p)
        if p > 2 * n:
            if matrices is None:
                i = k[:, None] * n + k[None, :]
                every = here[:, None, None] & (i >= 0)[None, :, :]
                w = _logit(values, scale + 2, bias, row[:, None, None], 2 * n + i[None, :, :], every, p)
                w = _softmax(w)
                to = lines + T * n + k[None, :]
                step = tokens.to(tl.int64) * n
                balanced = _balanced(w, epsilon, iterations, to, step, inside, True)
                tl.debug_barrier()  # other threads may have stored the divisors
                g = tl.load(of_mix + row[:, None, None] * width + n + i[None, :, :], mask=every, other=0.0)
                g = _balanced_gradient(g, balanced, iterations, to, step, inside)
                g = tl.reshape(w * (g - tl.sum(g * w, 2, keep_dims=True)), (BT, n * n))
                i = tl.arange(0, n * n)
            else:
                i, m = tl.arange(0, L), tl.arange(0, E)
                at = here[:, None] & (i < p - 2 * n)[None, :]
                w = _logit(values, scale + 2, bias, T, 2 * n + i[None, :], at, p)
                w = _softmax(tl.where((i < p - 2 * n)[None, :], w, -float("inf")))
                at = here[:, None] & (m < n * n)[None, :]
                of_r = tl.load(of_mix + T * width + n + m[None, :], mask=at, other=0.0)
                g = tl.dot(of_r, _permutations(matrices, i[None, :], m[:, None], p, n), input_precision=precision)
                g = w * (g - tl.sum(g * w, 1, keep_dims=True))
            along += _put(g, values, scale, root, of_values, sums, 2, row, 2 * n + i, here, p)
        tl.store(row_marks + row * 2, along * root * root / (n * C), mask=here)
        tl.store(row_marks + row * 2 + 1, tl.zeros((BT,), tl.float32), mask=here)
    else:
        here = row < tokens * n
        o = tl.arange(0, P)[None, :]
        inside, j = here[:, None] & (o < p), (row % n)[:, None]
        value = tl.load(values + row[:, None] * p + o, mask=inside, other=0.0)
        g = tl.load(of_mix + (row // n)[:, None] * width + _place(j, o, width, n, q), mask=inside, other=0.0)
        t = _tanh(value)
        factor = tl.where(o < p - 1, tl.load(scale).to(tl.float32), tl.load(scale2).to(tl.float32))
        of_value = factor * g * (1 - t * t)
        along = tl.sum(of_value * (value - _loaded(folds + p + o, o < p)), 1)
        given = of_value * root[:, None]
        tl.store(of_values + row[:, None] * p + o, given, mask=inside)
        tl.store(row_marks + row * 2, along * root * root / C, mask=here)
        tl.store(row_marks + row * 2 + 1, tl.sum(given * _loaded(folds + o, o < p), 1) / C, mask=here)
        k, flat = tl.arange(0, n), tl.arange(0, P)
        by_stream = tl.sum(tl.reshape(g, (BT // n, n, P)), 0)
        tl.store(sums + k[:, None] * p + flat[None, :], by_stream, mask=(k >= 0)[:, None] & (flat < p)[None, :])
        tl.store(sums + n * p, tl.sum(tl.sum(tl.where(o < p - 1, g * t, 0.0), 1), 0))
        tl.store(sums + n * p + 1, tl.sum(tl.sum(tl.where(o == p - 1, g * t, 0.0), 1), 0))
        tl.store(sums + n * p + 2 + flat, tl.sum(of_value, 0), mask=flat < p)


@triton.jit(do_not_specialize=["tokens", "blocks"])
def _streams_gradient(
    h, mix, weight, weight2, row_gain, gain, statistics, row_statistics, marks, row_marks, of_values, of_x, g, gradient,
    partial, tokens, token, stream, g_token, g_stream, blocks, splits: tl.constexpr, n: tl.constexpr, q: tl.constexpr,
    C: tl.constexpr, p: tl.constexpr, width: tl.constexpr, manifold: tl.constexpr, norm: tl.constexpr,
    row_centred: tl.constexpr, BT: tl.constexpr, BC: tl.constexpr, P: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """The gradient of BC features of the streams of every `splits`-th block of BT tokens, and their part of the sums
    over tokens: the gradients of the weight (before the gain of the rows' norm) and of the branch's norm."""
    per_token: tl.constexpr = 1 if manifold else n
    columns: tl.constexpr = n * BC if manifold else BC  # of a row
    rows: tl.constexpr = BT * per_token
    k, parts, o, i = tl.arange(0, n), tl.arange(0, q), tl.arange(0, P), tl.arange(0, columns)
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    of_column, stream_of = tl.program_id(0) * BC + i % BC, i // BC
    w = _weight(weight, weight2, o[:, None], stream_of[None, :], of_column[None, :], n, C, p, manifold)
    if not manifold:
        w *= _loaded(row_gain + of_column, of_column < C)[None, :]
    of_weight = tl.zeros((P, columns), tl.float32)
    of_gain, of_shift = tl.zeros((q, BC), tl.float32), tl.zeros((q, BC), tl.float32)
    for block in range(tl.program_id(1), blocks, splits):
        t = (block * BT + tl.arange(0, BT)).to(tl.int64)
        here = t < tokens
        inside = here[:, None] & (c < C)[None, :]
        every, of_k = inside[:, None, :] & (k >= 0)[None, :, None], here[:, None] & (k >= 0)[None, :]
        x = _loaded(h + t[:, None, None] * token + k[None, :, None] * stream + c[None, None, :], every)
        row = t[:, None] * per_token + k[None, :] % per_token
        share = tl.load(row_marks + row * 2, mask=of_k, other=0.0)
        offset = tl.load(row_marks + row * 2 + 1, mask=of_k, other=0.0)
        centred = x
        if row_centred:
            mean = tl.load(row_statistics + row * 2, mask=of_k, other=0.0)
            centred = tl.where(every, x - mean[:, :, None], 0.0)
        r = (block * rows + tl.arange(0, rows)).to(tl.int64)
        given = tl.load(
            of_values + r[:, None] * p + o[None, :],
            mask=(r < tokens * per_token)[:, None] & (o < p)[None, :],
            other=0.0,
        )
        y = tl.reshape(tl.dot(given, w, input_precision=precision), (BT, n, BC))
        y -= share[:, :, None] * centred
        if row_centred:
            y -= offset[:, :, None]
        of_weight = tl.dot(
            tl.trans(given), tl.reshape(centred, (rows, columns)), of_weight, input_precision=precision
        )
        for part in tl.static_range(q):
            alpha = tl.load(mix + t[:, None] * width + k[None, :] * q + part, mask=of_k, other=0.0)
            d = _loaded(of_x + t[:, None] * (q * C) + part * C + c[None, :], inside)
            if norm:
                mean, root = statistics + t * 2, tl.load(statistics + t * 2 + 1, mask=here, other=0.0)[:, None]
                s = tl.sum(alpha[:, :, None] * x, 1) - tl.load(mean, mask=here, other=0.0)[:, None]
                s = tl.where(inside, s * root, 0.0)
                of_gain += tl.where((parts == part)[:, None], tl.sum(d * s, 0)[None, :], 0.0)
                of_shift += tl.where((parts == part)[:, None], tl.sum(d, 0)[None, :], 0.0)
                of_mean = tl.load(marks + t * 2, mask=here, other=0.0)[:, None]
                along = tl.load(marks + t * 2 + 1, mask=here, other=0.0)[:, None]
                d = root * (d * _loaded(gain + part * C + c, c < C)[None, :] - of_mean - along * s)
            y += alpha[:, :, None] * d[:, None, :]
        if g is not None:
            if width == n * q + n:
                y += _loaded(g + t[:, None, None] * g_token + k[None, :, None] * g_stream + c[None, None, :], every)
            else:
                for j in tl.static_range(n):
                    r_of_j = tl.load(mix + t[:, None] * width + n * q + k[None, :] * n + j, mask=of_k, other=0.0)
                    of_j = _loaded(g + t[:, None] * g_token + j * g_stream + c[None, :], inside)
                    y += r_of_j[:, :, None] * of_j[:, None, :]
        to = gradient + t[:, None, None] * (n * C) + k[None, :, None] * C + c[None, None, :]
        tl.store(to, y.to(gradient.dtype.element_ty), mask=every)
    length: tl.constexpr = n * C if manifold else C
    partial += tl.program_id(1) * (p * length + 2 * q * C)
    to = partial + o[:, None] * length + (stream_of * C + of_column)[None, :]
    tl.store(to, of_weight, mask=(o < p)[:, None] & (of_column < C)[None, :])
    to = partial + p * length + parts[:, None] * C + c[None, :]
    tl.store(to, of_gain, mask=(parts >= 0)[:, None] & (c < C)[None, :])
    tl.store(to + q * C, of_shift, mask=(parts >= 0)[:, None] & (c < C)[None, :])


def tile(features: int) -> tuple[int, int, int]:
    """Tokens per program, room for all features of a token (a power of two), and warps: for kernels of whole rows."""
    room = triton.next_power_of_2(features)
    return max(1, 2048 // room), room, min(max(4, room // 512), 32)


def _sizes(reads: Reads, large: int = 32) -> dict[str, object]:
    """What the kernels need of a connection at compile time, apart from its norm."""
    n, p = reads.streams, reads.outputs
    return {
        "n": n, "q": reads.parts, "C": reads.features, "p": p, "width": reads.width,
        "manifold": reads.form == MANIFOLD, "iterations": reads.iterations, "BT": large,
        "P": max(16, triton.next_power_of_2(p)), "L": max(16, triton.next_power_of_2(p - 2 * n)),
        "E": max(16, n * n), "precision": PRECISION,
        **OPTIONS,
    }  # fmt: skip


def _kept(reads: Reads, kept: Tensor, tokens: int) -> Sequence[Tensor]:
    """Values, statistics of rows and of inputs, and what rows of the weight and the rows' shift add up to."""
    return kept.split([*reads.kept_sizes(tokens), 2 * reads.outputs])


def read(reads: Reads, h: Tensor, apart: tuple[int, int], parameters: Parameters) -> tuple[Tensor, Tensor, Tensor]:
    """The branch's input, the weights (..., width), and what `read_gradient` needs of them.

    :param apart: distances between h's tokens and between its streams.
    """
    outer, n, q = h.shape[:-2], reads.streams, reads.parts
    tokens, rows = outer.numel(), outer.numel() * (1 if reads.form == MANIFOLD else n)
    x = h.new_empty((*outer, q * reads.features), dtype=normalised_type(h) if reads.norm else h.dtype)
    mix = h.new_empty((*outer, reads.width), dtype=torch.float32)
    kept = mix.new_empty(sum(reads.kept_sizes(tokens)) + 2 * reads.outputs)
    values, row_statistics, statistics, folds = _kept(reads, kept, tokens)
    *of_weights, alpha, residual, beta, gain, shift = parameters
    if alpha is not None and residual is None:
        residual = alpha[:, q:]
    rows_apart = (0 if alpha is None else alpha.stride(0), 0 if residual is None else residual.stride(0))
    sizes = _sizes(reads, 16 if rows < 8192 else 32)
    with torch.cuda.device_of(h):
        _weigh[triton.cdiv(rows, sizes["BT"]),](
            h, *of_weights, alpha, residual, beta, mix, values, row_statistics, folds, tokens, *apart, *rows_apart,
            reads.row_epsilon, reads.alpha_epsilon, reads.beta_epsilon, reads.magnitude, reads.sinkhorn_epsilon,
            **sizes, centred=reads.row_norm == _LAYER_NORM, BC=64,
        )  # fmt: skip
        T, F, warps = tile(q * reads.features)
        _mix_inputs[triton.cdiv(tokens, T),](
            h, mix, gain, shift, x, statistics, tokens, *apart, reads.epsilon, n, q, reads.features, reads.width,
            bool(reads.norm), reads.norm == _LAYER_NORM, T, F // q, num_warps=warps, **OPTIONS,
        )  # fmt: skip
    return x, mix, kept


def write(h: Tensor, apart: tuple[int, int], mix: Tensor, f: Tensor) -> Tensor:
    """The streams after the branch; f may have a type of its own."""
    output = torch.empty_like(h, memory_format=torch.contiguous_format)
    (n, features), tokens, width = h.shape[-2:], h.shape[:-2].numel(), mix.size(-1)
    BC = min(triton.next_power_of_2(features), 1024 // n)
    BT = max(1, 4096 // (n * BC))
    with torch.cuda.device_of(h):
        _write_tokens[triton.cdiv(tokens, BT), triton.cdiv(features, BC)](
            h, mix, f, output, tokens, *apart, n, f.size(-1) // features, features, width, BT, BC, **OPTIONS
        )
    return output


def write_gradient(g: Tensor, apart: tuple[int, int], mix: Tensor, f: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of β, in the place of `mix`, and of f, from that of the output."""
    of_mix, of_f = torch.empty_like(mix), torch.empty_like(f)
    (n, features), tokens, width = g.shape[-2:], g.shape[:-2].numel(), mix.size(-1)
    T, F, warps = tile(features)
    with torch.cuda.device_of(g):
        _write_gradient[triton.cdiv(tokens, T),](
            g, mix, f, of_mix, of_f, tokens, *apart, n, f.size(-1) // features, features, width, T, F,
            triton.next_power_of_2(width), num_warps=warps, **OPTIONS,
        )  # fmt: skip
    return of_mix, of_f


def read_gradient(
    reads: Reads, h: Tensor, apart: tuple[int, int], mix: Tensor, kept: Tensor, parameters: Sequence[Any], of_x: Tensor,
    of_beta: Tensor | None, g: Tensor | None, g_apart: tuple[int, int],
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """The gradients of h and of the parameters, from those of x, of β and, if it is not None, of the output."""
    tokens, n, q, p, features = h.shape[:-2].numel(), reads.streams, reads.parts, reads.outputs, reads.features
    manifold, norm, width = reads.form == MANIFOLD, bool(reads.norm), reads.width
    rows, length = tokens * (1 if manifold else n), features * (n if manifold else 1)
    values, row_statistics, statistics, folds = _kept(reads, kept, tokens)
    weight, weight2, row_gain, row_shift, scale, scale2, bias, matrices, *_, gain, shift = parameters
    sizes = _sizes(reads)
    count = p + 3 if manifold else n * p + 2 + p  # sums over tokens
    programs = triton.cdiv(rows, 32)
    of_mix, of_values, marks = torch.empty_like(mix), torch.empty_like(values), mix.new_empty(tokens, 2)
    row_marks, sums = mix.new_empty(rows, 2), mix.new_empty(programs, count)
    lines = mix.new_empty((2 * reads.iterations - 1) * tokens * n if matrices is None and p > 2 * n else 0)
    gradient = torch.empty_like(h, memory_format=torch.contiguous_format)
    BT, BC = 16, 32 if n < 8 else 8 if manifold else 16  # 99 KiB of shared memory and 255 registers suffice
    blocks, chunks = triton.cdiv(tokens, BT), triton.cdiv(features, BC)
    splits = max(1, min(blocks, _PROGRAMS // chunks))
    partial = mix.new_empty(splits, p * length + 2 * q * features)
    with torch.cuda.device_of(h):
        T, F, warps = tile(q * features)
        _weights_gradient[triton.cdiv(tokens, T),](
            h, mix, gain, statistics, of_x, of_beta, g, of_mix, marks, tokens, *apart, *g_apart, n, q, features, width,
            norm, reads.norm == _LAYER_NORM, T, F // q, num_warps=warps, **OPTIONS,
        )  # fmt: skip
        _values_gradient[programs,](
            of_mix, values, row_statistics, folds, scale, scale2, bias, matrices, of_values, row_marks, lines, sums,
            tokens, reads.magnitude, reads.sinkhorn_epsilon, **sizes, SUMS=count,
        )  # fmt: skip
        _streams_gradient[chunks, splits](
            h, mix, weight, weight2, row_gain, gain, statistics, row_statistics, marks, row_marks, of_values, of_x, g,
            gradient, partial, tokens, *apart, *g_apart, blocks, splits, n, q, features, p, width, manifold, norm,
            reads.row_norm == _LAYER_NORM, BT, BC, sizes["P"], PRECISION, num_warps=8, num_stages=1,
            **OPTIONS,
        )  # fmt: skip
    summed, total = sums.sum(0), partial.sum(0)
    of_weight, of_gain, of_shift = total.split([p * length, q * features, q * features])
    of_weight = of_weight.view(p, length)
    if manifold:
        found = [of_weight, None, None, None, summed[p : p + scale.numel()], None, summed[:p], *[None] * 4]
    else:
        of_first, of_scales, of_shifts = summed.split([n * p, 2, p])
        of_first, w = of_first.view(n, p), torch.cat([weight, weight2], 1).t().float()
        of_w = of_weight * row_gain
        if row_shift is not None:
            of_w = torch.addcmul(of_w, of_shifts[:, None], row_shift)
        joined = parameters[9] is None
        found = [
            of_w[:-1].t(), of_w[-1:].t(), (w * of_weight).sum(0), (w * of_shifts[:, None]).sum(0), of_scales[:1],
            of_scales[1:], None, None, of_first[:, : q + n if joined else q], of_first[:, q : q + n], of_first[:, -1],
        ]  # fmt: skip
    return gradient, *(
        None if each is None or of_each is None else of_each.reshape(each.shape).to(each.dtype)
        for each, of_each in zip(parameters, [*found, of_gain, of_shift], strict=True)
    )
