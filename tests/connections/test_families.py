"""The field's families, each against its formula written out for a whole stack: as it starts, and with drawn
parameters, for value and gradient of x and of every parameter."""

from __future__ import annotations

import copy
import dataclasses
import functools
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rskip.connections import (
    HOST_NEEDS,
    Place,
    StackConnection,
    build_connection,
    build_stack_connection,
    works_on,
)
from rskip.connections.sinkhorn import sinkhorn
from rskip.settings.errors import SettingError
from tests.connections.every_connection import OWN_FAMILIES, families_of
from tests.connections.stack import BRANCHES, FEATURES, Stack, places_of
from tests.connections.test_formulas import BLOCK_FORMULAS, kind_of, norm_of


@dataclass
class Written:
    """What a formula is written with: parameters by name, branches by block, normalisations by definition."""

    spec: str
    model: Stack

    @property
    def places(self) -> list[Place]:
        return self.model.places

    def p(self, name: str) -> Tensor:
        return self.model.get_parameter(name)

    def f(self, block: int, x: Tensor) -> Tensor:
        return torch.tanh(x @ self.model.branches[block])

    def norm(self, name: str, z: Tensor) -> Tensor:
        return norm_of(kind_of(self.spec), dict(self.model.named_parameters()))(name, z)

    def of(self, block: int, z: Tensor, name: str = "norm") -> Tensor:
        """The normalisation `name` of a block."""
        return self.norm(f"connections.{block}.{name}", z)

    def blocks(self) -> range:
        return range(len(self.places))


Formula = Callable[[Written, Tensor], Tensor]


def each_block(block: Callable[[Written, int, Tensor], Tensor], *, closes: bool) -> Formula:
    """x from block to block, and a closing normalisation where there is one."""

    def formula(w: Written, x: Tensor) -> Tensor:
        for k in w.blocks():
            x = block(w, k, x)
        return w.norm("closing", x) if closes else x

    return formula


def deepnorm(w: Written, k: int, x: Tensor) -> Tensor:
    layers, others, stack = w.places[k].layers, w.places[k].other_layers, w.places[k].stack
    alpha = 0.81 * (layers**4 * others) ** (1 / 16) if stack == "encoder" else (3 * layers) ** 0.25
    return w.of(k, alpha * x + w.f(k, x))


def mixln(w: Written, k: int, x: Tensor) -> Tensor:
    return w.of(k, x + w.f(k, x)) if w.places[k].layer <= 1 else x + w.f(k, w.of(k, x))  # ⌊0.4·3⌋


def sandwich(w: Written, k: int, x: Tensor) -> Tensor:
    return x + w.of(k, w.f(k, w.of(k, x)), "branch_norm")


def periln(w: Written, x: Tensor) -> Tensor:
    return each_block(sandwich, closes=True)(w, w.norm("stack.norm", x))


def laurel(w: Written, k: int, x: Tensor) -> Tensor:
    low = x @ w.p(f"connections.{k}.down.weight").T @ w.p(f"connections.{k}.up.weight").T
    return x + low + w.f(k, w.of(k, x))


def laurel_bounded(w: Written, k: int, x: Tensor, *, softmax: bool) -> Tensor:
    alpha, beta = (torch.exp(w.p(f"connections.{k}.{name}_scale")) for name in ("branch", "skip"))
    if softmax:  # with a norm
        return (alpha * w.f(k, w.of(k, x)) + beta * x) / (alpha + beta)
    return alpha / (1 + alpha) * w.f(k, x) + beta / (1 + beta) * x


def residual_dual(w: Written, x: Tensor) -> Tensor:
    r = x
    for k in w.blocks():
        f = w.f(k, x)
        x, r = w.of(k, x + f), r + f
    return x + w.norm("stack.norm", r)


def b2t(w: Written, x: Tensor) -> Tensor:
    blocks_a_layer = len(BRANCHES[w.places[0].stack])
    for first in range(0, len(w.places), blocks_a_layer):
        bottom = x
        for k in range(first, first + blocks_a_layer - 1):
            x = w.of(k, x + w.f(k, x))
        last = first + blocks_a_layer - 1
        x = w.of(last, x + w.f(last, x) + bottom)
    return x


def siamese(w: Written, x: Tensor) -> Tensor:
    y = x
    for k in w.blocks():
        x = w.of(k, x, "post_norm")
        f = w.f(k, w.of(k, x + w.of(k, y, "pre_norm")))
        x, y = x + f / math.sqrt(len(BRANCHES[w.places[k].stack]) * w.places[k].layer), y + f
    return w.norm("stack.norm", w.norm("stack.post_norm", x) + w.norm("stack.pre_norm", y))


def hyper(w: Written, x: Tensor, *, n: int, dynamic: bool, head: bool = False) -> Tensor:
    """Algorithm 2 of the paper: [α, R] (n, 1 + n), H (n, C) a position."""
    streams = torch.stack([x] * n, -2)  # (..., n, C)
    for k in w.blocks():
        at = f"connections.{k}."
        mixing = torch.cat([w.p(at + "input_weights")[:, None], w.p(at + "stream_weights")], 1)
        beta = w.p(at + "output_weights")
        if dynamic:
            z = w.of(k, streams, "stream_norm")
            mixing = mixing + w.p(at + "mixing_scale") * torch.tanh(z @ w.p(at + "mixing"))
            beta = beta + (w.p(at + "output_scale") * torch.tanh(z @ w.p(at + "output_mixing")))[..., 0]
        mixed = mixing.transpose(-1, -2) @ streams  # (..., 1 + n, C)
        f = w.f(k, w.of(k, mixed[..., 0, :]))
        streams = mixed[..., 1:, :] + beta[..., None] * f[..., None, :]
    if head:
        return w.norm("closing", headed(w, list(streams.unbind(-2))))
    return w.norm("closing", streams.sum(-2))


def mhc(w: Written, x: Tensor, *, n: int) -> Tensor:
    """As DeepSeek's kernels are checked: one product, three scales, and the transposed residual matrix."""
    streams = torch.stack([x] * n, -2)  # (..., n, C)
    for k in w.blocks():
        at = f"connections.{k}."
        flat = streams.flatten(-2)
        mixes = flat @ w.p(at + "mixing").T / torch.sqrt((flat * flat).mean(-1, keepdim=True) + 1e-5)
        scales = w.p(at + "scale").repeat_interleave(torch.tensor([n, n, n * n]))
        mixes = mixes * scales + w.p(at + "bias")
        pre, post = torch.sigmoid(mixes[..., :n]), 2 * torch.sigmoid(mixes[..., n : 2 * n])
        matrix = mixes[..., 2 * n :].unflatten(-1, (n, n)).softmax(-1) + 1e-6
        matrix = matrix / (matrix.sum(-2, keepdim=True) + 1e-6)
        for _ in range(19):
            matrix = matrix / (matrix.sum(-1, keepdim=True) + 1e-6)
            matrix = matrix / (matrix.sum(-2, keepdim=True) + 1e-6)
        f = w.f(k, w.of(k, (pre[..., None] * streams).sum(-2)))
        streams = post[..., None] * f[..., None, :] + matrix.mT @ streams
    return w.norm("closing", streams.sum(-2))


def streams_with(w: Written, x: Tensor, n: int, residual: Callable[[Tensor], Tensor]) -> Tensor:
    """mhc's formula as sums over streams; `residual` computes R (..., n, n) from w, h_k ← Σ_j R_jk h_j + β_k f."""
    h = [x] * n
    for k in w.blocks():
        at = f"connections.{k}."
        flat = torch.cat(h, -1)
        values = flat @ w.p(at + "mixing").T / torch.sqrt((flat * flat).mean(-1, keepdim=True) + 1e-5)
        scale, bias = w.p(at + "scale"), w.p(at + "bias")
        pre = 1 / (1 + torch.exp(-(scale[0] * values[..., :n] + bias[:n])))
        post = 2 / (1 + torch.exp(-(scale[1] * values[..., n : 2 * n] + bias[n : 2 * n])))
        matrix = residual(scale[-1] * values[..., 2 * n :] + bias[2 * n :])
        f = w.f(k, w.of(k, sum(pre[..., j, None] * h[j] for j in range(n))))
        h = [sum(matrix[..., j, i, None] * h[j] for j in range(n)) + post[..., i, None] * f for i in range(n)]
    return w.norm("closing", sum(h))


def mhc_of_2026(
    w: Written,
    x: Tensor,
    *,
    n: int,
    identity: bool = False,
    single_pass: bool = False,
    magnitude: float = 2.0,
    eps: tuple[float, float] = (0.0, 1e-6),
    exit: str = "sum",
) -> Tensor:
    """DeepSeek-V4's, V4.1's and Hy4's forms, position by position of a list of streams."""

    def gates(at: str, h: list[Tensor]) -> Tensor:
        mean_square = sum((each * each).sum(-1) for each in h) / (n * x.size(-1))
        z = torch.cat(h, -1) / torch.sqrt(mean_square + 1e-5)[..., None]
        return torch.einsum("...c,mc->...m", z, w.p(at + "mixing"))

    def sigmoid(z: Tensor) -> Tensor:
        return 1 / (1 + torch.exp(-z))

    h = [x] * n
    alpha = torch.tensor([1.0] + [0.0] * (n - 1), dtype=x.dtype).expand(*x.shape[:-1], n)
    for k in w.blocks():
        at = f"connections.{k}."
        values, scale, bias = gates(at, h), w.p(at + "scale"), w.p(at + "bias")
        own = sigmoid(scale[0] * values[..., :n] + bias[:n]) + eps[0]
        alpha = alpha if single_pass else own
        beta = magnitude * sigmoid(scale[1] * values[..., n : 2 * n] + bias[n : 2 * n]) + (eps[0] if identity else 0)
        f = w.f(k, w.of(k, sum(alpha[..., j, None] * h[j] for j in range(n))))
        if not identity:
            matrix = torch.exp(scale[2] * values[..., 2 * n :] + bias[2 * n :]).unflatten(-1, (n, n))
            matrix = matrix / matrix.sum(-1, keepdim=True) + eps[1]
            for step in range(39):
                matrix = matrix / (matrix.sum(-1 if step % 2 else -2, keepdim=True) + eps[1])
            h = [sum(matrix[..., j, i, None] * h[j] for j in range(n)) for i in range(n)]
        h, alpha = [h[i] + beta[..., i, None] * f for i in range(n)], own
    if single_pass:
        return w.norm("closing", sum(alpha[..., i, None] * h[i] for i in range(n)))
    if exit == "head":
        return w.norm("closing", headed(w, h, eps[0]))
    return w.norm("closing", sum(h) / (n if exit == "mean" else 1))


def headed(w: Written, h: list[Tensor], eps: float = 0.0) -> Tensor:
    """DeepSeek-V4's exit of the streams."""
    flat = torch.cat(h, -1)
    z = flat / torch.sqrt((flat * flat).mean(-1, keepdim=True) + 1e-5) @ w.p("stack.mixing").T
    gates = eps + 1 / (1 + torch.exp(-w.p("stack.scale") * z - w.p("stack.bias")))
    return sum(gates[..., i, None] * each for i, each in enumerate(h))


def mixture_of_permutations(logits: Tensor, n: int) -> Tensor:
    shares = torch.exp(logits) / torch.exp(logits).sum(-1, keepdim=True)
    matrix = torch.zeros(*logits.shape[:-1], n, n, dtype=logits.dtype)
    for number, permutation in enumerate(itertools.permutations(range(n))):
        for j, k in enumerate(permutation):
            matrix[..., j, k] = matrix[..., j, k] + shares[..., number]
    return matrix


def identity_of(logits: Tensor, n: int) -> Tensor:
    return torch.eye(n, dtype=logits.dtype).expand(*logits.shape[:-1], n, n)


def frac(w: Written, k: int, x: Tensor, *, m: int, dynamic: bool) -> Tensor:
    """Eq. 8 and 11 to 14 of the paper, part by part."""
    at, size = f"connections.{k}.", x.size(-1) // m
    parts = [x[..., i * size : (i + 1) * size] for i in range(m)]
    weights = [[w.p(at + "part_weights")[j, i] for i in range(2 * m)] for j in range(m)]
    beta = list(w.p(at + "output_weights"))
    if dynamic:
        for j, part in enumerate(parts):
            n = w.of(k, part, "part_norm")
            found = w.p(at + "mixing_scale") * torch.tanh(n @ w.p(at + "mixing"))
            weights[j] = [weights[j][i] + found[..., i, None] for i in range(2 * m)]
            beta[j] = beta[j] + w.p(at + "output_scale") * torch.tanh(n @ w.p(at + "output_mixing"))
    mixed = [sum(weights[j][i] * parts[j] for j in range(m)) for i in range(2 * m)]
    f = w.f(k, w.of(k, torch.cat(mixed[:m], -1)))
    return torch.cat([mixed[m + i] + beta[i] * f[..., i * size : (i + 1) * size] for i in range(m)], -1)


def x0(w: Written, x: Tensor, *, rate: float = 1, backout: bool = False) -> Tensor:
    first = x
    for k in w.blocks():
        place = w.places[k]
        if k % len(BRANCHES[place.stack]) == 0:
            start = 1.15 - 0.10 * (place.layer - 1) / (place.layers - 1)
            factor = start + rate * (w.p(f"connections.{k}.skip_weight") - start)
            x = factor * x + w.p(f"connections.{k}.input_weight") * first
        x = x + w.f(k, w.of(k, x))
        if place.layer == 3 // 2 + 1:
            middle = x
    return w.norm("closing", x - w.p("stack.backout_weight") * middle if backout else x)


def gpas(w: Written, k: int, x: Tensor) -> Tensor:
    g = w.p(f"connections.{k}.damping")
    z = x + w.f(k, w.of(k, x))
    return z - g / (1 + torch.exp(-g)) * z.detach()


def orthogonal(x: Tensor, f: Tensor) -> Tensor:
    share = torch.einsum("btc,btc->bt", x, f) / (torch.einsum("btc,btc->bt", x, x) + 1e-6)
    return x + f - share[..., None] * x


def ngpt(w: Written, k: int, x: Tensor) -> Tensor:
    """The code's formula, at its scale: vectors of norm 1, up to eps."""
    def unit(z: Tensor) -> Tensor:
        return z / torch.sqrt((z * z).sum(-1, keepdim=True) + z.size(-1) * 1e-5)

    root = math.sqrt(x.size(-1))
    alpha = (w.p(f"connections.{k}.step_weight") * (0.05 * root)).abs()
    h, step = unit(x), unit(w.f(k, root * unit(x)))
    y = h + alpha * (step - h)
    return root * y / torch.sqrt((y * y).sum(-1, keepdim=True) + 1e-5)


def deep_delta(w: Written, k: int, x: Tensor) -> Tensor:
    def sigmoid_of(name: str, z: Tensor) -> Tensor:
        weight, bias = w.p(f"connections.{k}.{name}.weight")[0], w.p(f"connections.{k}.{name}.bias")
        return 1 / (1 + torch.exp(-((z * weight).sum(-1, keepdim=True) + bias)))

    normalised = w.of(k, x)
    f = w.f(k, normalised)
    direction = f / torch.sqrt((f * f).sum(-1, keepdim=True) + 1e-10)
    beta, target = 2 * sigmoid_of("step", normalised), 4 * sigmoid_of("target", x)
    return x + beta * (target - (direction * x).sum(-1, keepdim=True)) * direction


def mudd(w: Written, x: Tensor) -> Tensor:
    outputs = [x]
    for k in w.blocks():
        x = x + w.f(k, w.of(k, x))
        if (k + 1) % len(BRANCHES[w.places[k].stack]) == 0:
            outputs.append(x)
            z = x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-5) @ w.p(f"connections.{k}.down.weight").T
            weights = (z * (1 + torch.erf(z / math.sqrt(2))) / 2) @ w.p(f"connections.{k}.up.weight").T
            weights = weights + w.p(f"connections.{k}.weights")
            x = sum(weights[..., j, None] * output for j, output in enumerate(outputs))
    return w.norm("closing", x)


def hybridnorm(w: Written, k: int, x: Tensor, *, first_is_prenorm: bool) -> Tensor:
    place = w.places[k]
    if first_is_prenorm and place.layer == 1:
        return x + w.f(k, w.of(k, x))
    n = w.of(k - 1, x) if place.branch == "ffn" else x
    return n + w.f(k, n)


def normformer(w: Written, k: int, x: Tensor) -> Tensor:
    scale = w.p(f"connections.{k}.skip_weight") if w.places[k].branch == "ffn" else 1
    return scale * x + w.f(k, w.of(k, x))


def denseformer(w: Written, x: Tensor) -> Tensor:
    outputs = [x]
    for k in w.blocks():
        x = x + w.f(k, w.of(k, x))
        if (k + 1) % len(BRANCHES[w.places[k].stack]) == 0:
            outputs.append(x)
            weights = w.p(f"connections.{k}.weights")
            assert len(weights) == len(outputs)
            x = (weights[:, None, None, None] * torch.stack(outputs)).sum(0)
    return w.norm("closing", x)


def attnres(w: Written, x: Tensor, *, sizes: dict[int, list[int]]) -> Tensor:
    """Figure 2 of the paper: completed sums and the partial one; `sizes`: branches in each, by those in the stack."""

    def attend(name: str, sources: list[Tensor]) -> Tensor:
        v = torch.stack(sources)
        keys = v / torch.sqrt((v * v).mean(-1, keepdim=True) + 1e-5) * w.p(f"{name}.norm.weight")
        return torch.einsum("nbt,nbtc->btc", torch.einsum("c,nbtc->nbt", w.p(f"{name}.query"), keys).softmax(0), v)

    completed, k = [x], 0
    for size in sizes[len(w.places)]:
        partial: list[Tensor] = []
        for _ in range(size):
            h = x if k == 0 else attend(f"connections.{k}.attention", completed + partial)
            f = w.f(k, w.of(k, h))
            partial, k = [partial[0] + f if partial else f], k + 1
        completed += partial
    assert k == len(w.places)
    return w.norm("closing", attend("stack.attention", completed))


def attnres_of_inkling(w: Written, x: Tensor, *, layers: int, queries: int = 1) -> Tensor:
    """Inkling 2's loop: `layers` layers in each sum, and attention over normalised sums, which may have three queries
    in self-attention. The model's branch adds up what they read."""

    def attend(name: str, sources: list[Tensor]) -> Tensor:
        v = torch.stack([each / torch.sqrt((each * each).mean(-1, keepdim=True) + 1e-5) for each in sources])
        query = w.p(f"{name}.query").view(-1, x.size(-1)) * w.p(f"{name}.norm.weight")
        return torch.einsum("nqbt,nbtc->qbtc", torch.einsum("qc,nbtc->nqbt", query, v).softmax(0), v)

    blocks_a_layer = len(BRANCHES[w.places[0].stack])
    sums: list[Tensor] = [x]
    for k in w.blocks():
        split = queries == 3 and w.places[k].branch == "self_attn"
        h = [x] * 3 if k == 0 else list(attend(f"connections.{k}.attention", sums))
        names = ("norm", "key_norm", "value_norm") if split else ("norm",)
        f = w.f(k, sum(w.of(k, each, name) for each, name in zip(h, names, strict=False)))
        sums = [*sums, f] if k % (layers * blocks_a_layer) == 0 else [*sums[:-1], sums[-1] + f]
    return w.norm("closing", attend("stack.attention", sums)[0])


def gated_reading(w: Written, at: str, streams: Tensor) -> tuple[Tensor, Tensor]:
    n = streams.size(-2)
    z = streams / torch.sqrt((streams * streams).mean(-1, keepdim=True) + 1e-5)
    z = z * w.p(at + "reading.gain").view(n, -1)
    hidden = z.flatten(-2) @ w.p(at + "reading.down.weight").T / n
    gates = 1 / (1 + torch.exp(-(hidden / (1 + torch.exp(-hidden)) @ w.p(at + "reading.up.weight").T)))
    return z.flatten(-2), (gates.view_as(z) * z).sum(-2) / n


def gated_residual(w: Written, x: Tensor, *, n: int) -> Tensor:
    streams = torch.stack([x] * n, -2)
    for k in w.blocks():
        z, given = gated_reading(w, f"connections.{k}.", streams)
        gates = 2 / (1 + torch.exp(-z @ w.p(f"connections.{k}.inject.weight").T / n))
        streams = streams + gates[..., None] * w.f(k, given)[..., None, :]
    return gated_reading(w, "stack.", streams)[1]


def lanes(w: Written, x: Tensor, *, single: int) -> Tensor:
    """modded-nanogpt's loop: one lane in the first layers, then attention reads lane 0 and feed-forward lane 1."""
    lane0 = lane1 = middle = x
    for k in w.blocks():
        place, at = w.places[k], f"connections.{k}."
        f = w.f(k, w.of(k, lane1 if place.branch == "ffn" else lane0))
        skip, first = w.p(at + "skip_weight"), w.p(at + "branch_weight")
        if place.layer <= single:
            lane0 = lane1 = skip * lane0 + first * f
        else:
            lane0, lane1 = skip * lane0 + first * f, skip * lane1 + w.p(at + "lane_weight") * f
        if place.layer == single + 1:
            middle = lane0
    return w.norm("closing", (lane0 + lane1) * 0.5 + w.p("stack.backout_weight") * middle)


def askip(w: Written, k: int, x: Tensor, *, rate: float) -> Tensor:
    """λ = 1 + log(1 + e^b·e^(c·a)), where 1 + log(1 + e^b) is α by depth."""
    alpha = 0.81 * (3**4 * 2) ** (1 / 16) if w.places[k].stack == "encoder" else 9**0.25
    scale = 1 + torch.log1p(math.expm1(alpha - 1) * torch.exp(rate * w.p(f"connections.{k}.offset")))
    return w.of(k, scale * x + w.f(k, x))


def recursions(w: Written, k: int, x: Tensor, count: int) -> list[Tensor]:
    ys = [w.f(k, x)]
    for number in range(count):
        ys.append(w.of(k, x + ys[-1], f"norms.{number}"))
    return ys[1:]


def askip_mixture(w: Written, k: int, x: Tensor) -> Tensor:
    shares = torch.exp(w.p(f"connections.{k}.logits"))
    return (shares[:, None, None, None] * torch.stack(recursions(w, k, x, 3))).sum(0) / shares.sum()


STACK_FORMULAS: dict[str, Formula] = {
    "admin": each_block(lambda w, k, x: w.of(k, w.p(f"connections.{k}.skip_weight") * x + w.f(k, x)), closes=False),
    "askip+ln": each_block(functools.partial(askip, rate=0.01), closes=False),
    "askip+rms:rate=0.5": each_block(functools.partial(askip, rate=0.5), closes=False),
    "askip+ln:form=depth": each_block(deepnorm, closes=False),
    "askip+ln:form=recursive": each_block(lambda w, k, x: recursions(w, k, x, 2)[-1], closes=False),
    "askip+ln:form=mixture": each_block(askip_mixture, closes=False),
    "deepnorm": each_block(deepnorm, closes=False),
    "deepnorm+rms": each_block(deepnorm, closes=False),
    "rezero": each_block(lambda w, k, x: x + w.p(f"connections.{k}.alpha") * w.f(k, x), closes=False),
    "layerscale": each_block(lambda w, k, x: x + w.p(f"connections.{k}.branch_weight") * w.f(k, x), closes=False),
    "layerscale+ln": each_block(
        lambda w, k, x: x + w.p(f"connections.{k}.branch_weight") * w.f(k, w.of(k, x)), closes=True
    ),
    "sandwich": each_block(sandwich, closes=True),
    "periln+rms": periln,
    "lns": each_block(lambda w, k, x: x + w.f(k, w.of(k, x) / math.sqrt(w.places[k].layer)), closes=True),
    "mixln:ratio=0.4": each_block(mixln, closes=True),
    "keel": each_block(lambda w, k, x: w.of(k, len(w.places) * x + w.f(k, w.of(k, x)), "output_norm"), closes=False),
    "laurel+ln:rank=3": each_block(laurel, closes=True),
    "laurel:form=rw": each_block(
        lambda w, k, x: w.p(f"connections.{k}.branch_scale") * w.f(k, x) + w.p(f"connections.{k}.skip_scale") * x,
        closes=False,
    ),
    "laurel+ln:bound=softmax,form=rw": each_block(functools.partial(laurel_bounded, softmax=True), closes=True),
    "laurel:bound=sigmoid,form=rw": each_block(functools.partial(laurel_bounded, softmax=False), closes=False),
    "residual_dual": residual_dual,
    "b2t+rms": b2t,
    "siamese": siamese,
    "hyper:streams=3": lambda w, x: hyper(w, x, n=3, dynamic=True),
    "hyper+rms:form=static,streams=2": lambda w, x: hyper(w, x, n=2, dynamic=False),
    "denseformer": denseformer,
    "attnres:blocks=2": lambda w, x: attnres(w, x, sizes={6: [3, 3], 9: [4, 5]}),
    "attnres+rms": lambda w, x: attnres(w, x, sizes={6: [1] * 6, 9: [1] * 7 + [2]}),
    "mhc:streams=3": lambda w, x: mhc(w, x, n=3),
    "mhc:residual=identity,streams=3": lambda w, x: streams_with(w, x, 3, functools.partial(identity_of, n=3)),
    "mhc:gate_eps=1e-3,sinkhorn_eps=1e-2,start=deepseek,streams=3,exit=head": lambda w, x: mhc_of_2026(
        w, x, n=3, eps=(1e-3, 1e-2), exit="head"
    ),
    "mhc+rms:exit=head,gate_eps=1e-6,magnitude=1.5,residual=identity,start=hy4": lambda w, x: mhc_of_2026(
        w, x, n=4, identity=True, magnitude=1.5, eps=(1e-6, 0), exit="head"
    ),
    "mhc:exit=mean,start=home,streams=2": lambda w, x: mhc_of_2026(w, x, n=2, exit="mean"),
    "mhc:gate_eps=1e-3,reads=previous,streams=3": lambda w, x: mhc_of_2026(
        w, x, n=3, single_pass=True, eps=(1e-3, 1e-6)
    ),
    "hyper:exit=head,streams=3": lambda w, x: hyper(w, x, n=3, dynamic=True, head=True),
    "mhc_lite:streams=3": lambda w, x: streams_with(w, x, 3, functools.partial(mixture_of_permutations, n=3)),
    "frac": each_block(functools.partial(frac, m=4, dynamic=True), closes=True),
    "frac+rms:form=static,parts=2": each_block(functools.partial(frac, m=2, dynamic=False), closes=True),
    "x0": x0,
    "x0:backout=true": functools.partial(x0, backout=True),
    "lanes": functools.partial(lanes, single=1),
    "lanes+rms:ratio=0": functools.partial(lanes, single=0),
    "gated_residual:rank=3,streams=2": functools.partial(gated_residual, n=2),
    "attnres:layers=2": lambda w, x: attnres(w, x, sizes={6: [4, 2], 9: [6, 3]}),
    "attnres+rms:layers=2,queries=3,values=rms": functools.partial(attnres_of_inkling, layers=2, queries=3),
    "x0+rms:rate=0.01": functools.partial(x0, rate=0.01),
    "gpas": each_block(gpas, closes=True),
    "orthogonal": each_block(lambda w, k, x: orthogonal(x, w.f(k, x)), closes=False),
    "orthogonal+ln": each_block(lambda w, k, x: orthogonal(x, w.f(k, w.of(k, x))), closes=True),
    "ngpt": each_block(ngpt, closes=False),
    "ddl": each_block(deep_delta, closes=True),
    "mudd": mudd,
    # what is inside the branch: tests/transformer/test_inner_norms.py
    "subln": each_block(lambda w, k, x: x + w.f(k, w.of(k, x)), closes=True),
    "hybridnorm": each_block(lambda w, k, x: hybridnorm(w, k, x, first_is_prenorm=False), closes=True),
    "hybridnorm:first=prenorm": each_block(lambda w, k, x: hybridnorm(w, k, x, first_is_prenorm=True), closes=True),
    "normformer": each_block(lambda w, k, x: x + w.f(k, w.of(k, x)), closes=True),
    "normformer:res_scale=true": each_block(normformer, closes=True),
}


def drawn_input() -> Tensor:
    return torch.randn(2, 4, FEATURES, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.mark.parametrize("spec", STACK_FORMULAS)
def test_a_stack_follows_the_formula(spec, assert_same):
    """An encoder's and a decoder's, as it starts and with drawn parameters."""
    for stack in BRANCHES:
        torch.manual_seed(0)
        model = Stack(spec, stack)
        for _ in range(2):
            x = drawn_input().requires_grad_()
            variables = [x, *model.parameters()]
            assert_same(model(x), STACK_FORMULAS[spec](Written(spec, model), x), variables, variables, tolerance=1e-11)
            model.draw()


def test_every_family_has_a_formula_and_a_number_of_parameters():
    """Here, or that of a block alone, if it needs neither a place nor a state."""
    names = {each.name for each in OWN_FAMILIES}
    plain = (None, StackConnection)
    stacked = (each for each in OWN_FAMILIES if each.passes != "x" or each.connection.stack not in plain)
    need_stacks = {each.name for each in OWN_FAMILIES if each.needs_place} | {each.name for each in stacked}
    formulas = families_of(STACK_FORMULAS) | (families_of(BLOCK_FORMULAS) - need_stacks)
    assert names - formulas == set(), "add the formula to BLOCK_FORMULAS in test_formulas.py or STACK_FORMULAS here"
    assert names == families_of(COUNTS), "add the number to COUNTS"


STARTS_AS = {  # another connection, which it equals as it starts, if the norms' eps is 0
    "laurel+ln": "prenorm+ln",
    "laurel:form=rw": "1xskip",
    "laurel:bound=softmax,form=rw": "0.5xskip:branch_scale=0.5",
    "laurel:bound=sigmoid,form=rw": "0.5xskip:branch_scale=0.5",
    "hyper": "prenorm+ln",
    "hyper:form=static,streams=2": "prenorm+ln",
    "mixln:ratio=0": "prenorm+ln",
    "denseformer": "prenorm+ln",
    "normformer:res_scale=true": "prenorm+ln",
    "rezero:init=1": "1xskip",
    "admin": "1xskip+ln",
    "layerscale+ln:init=1": "prenorm+ln",
    "gpas": "prenorm+ln",
    "mudd": "prenorm+ln",
    "frac": "prenorm+ln",
    "frac:form=static,parts=2": "prenorm+ln",
    "attnres": "prenorm+ln",
    "attnres:blocks=2": "prenorm+ln",
    "attnres:layers=2": "prenorm+ln",
    "hyper:exit=mean": "prenorm+ln",
}


@pytest.mark.parametrize("spec", STARTS_AS)
def test_what_it_starts_as(spec):
    torch.manual_seed(0)
    x, stacks = drawn_input(), [Stack(spec), Stack(STARTS_AS[spec])]
    for module in [each for stack in stacks for each in stack.modules()]:
        module.eps = 0.0
    torch.testing.assert_close(stacks[0](x), stacks[1](x), rtol=1e-12, atol=1e-12)


def test_rezero_starts_as_the_identity_and_mixln_is_post_norm_where_all_layers_are():
    x = drawn_input()
    assert torch.equal(Stack("rezero")(x), x)
    postnorm = Stack("1xskip+ln")(x)
    torch.testing.assert_close(Stack("mixln:ratio=1")(x), postnorm, rtol=0, atol=1e-4)  # whose closing norm is idle


@pytest.mark.parametrize("options", ["", ",reads=previous", ",residual=identity", ",exit=mean", ",exit=head"])
def test_mhc_starts_near_a_pre_norm_block(options):
    """With φ = 0 it is one: α = 1/2 of n equal streams, or the first one, β = 1, R = 1/n or I."""
    model = Stack(f"mhc:streams=2{options}")
    for connection in model.connections:
        nn.init.zeros_(connection.mixing)
    x = drawn_input()
    torch.testing.assert_close(model(x), Stack("prenorm+ln")(x), rtol=0, atol=1e-4)


def test_how_mhc_can_start():
    """Of DeepSeek-V4 and Hy4 as in transformers' `_init_weights`, and with home streams."""
    place = places_of("encoder", 4, 0)[5]  # the sixth block: of 4 streams the second is its home

    def built(options: str) -> Any:
        return build_connection(f"mhc:{options}", 64, place=place)

    torch.manual_seed(0)
    deepseek, hy4, home = built("start=deepseek"), built("start=hy4,residual=identity"), built("start=home")
    assert deepseek.scale.tolist() == [1, 1, 1] and not deepseek.bias.any()
    assert hy4.scale.tolist() == pytest.approx([0.01] * 2)
    assert hy4.bias.tolist() == pytest.approx([-math.log(3)] * 4 + [0] * 4)
    for each in (deepseek, hy4):
        assert each.mixing.std().item() == pytest.approx(0.02, rel=0.05)
    of_residual = [[3.0 if j == k else -3.0 for k in range(4)] for j in range(4)]
    assert home.bias.tolist() == [-3, 0, -3, -3, 0, 0, 0, 0, *itertools.chain(*of_residual)]
    head: Any = build_stack_connection("mhc:exit=head,start=hy4", 64)
    assert head.bias.tolist() == pytest.approx([-math.log(3)] * 4) and head.scale.item() == pytest.approx(0.01)
    with pytest.raises(SettingError, match="place.*start=home"):
        build_connection("mhc:start=home", 64)


def test_mhc_lite_starts_with_the_blocks_own_stream_and_nearly_the_identity():
    for sublayer, own in ((1, 0), (2, 1), (6, 2)):
        connection: Any = build_connection("mhc_lite:streams=3", 4, place=places_of("encoder", 3, 0)[sublayer - 1])
        expected = [1.0 if stream == own else -1.0 for stream in range(3)]
        assert connection.bias.tolist() == [*expected, *expected, 0, -8, -8, -8, -8, -8]
        assert not connection.mixing.any() and connection.scale.tolist() == pytest.approx([0.01] * 3)
        matrix = connection.residual_weights(connection.bias[6:])
        torch.testing.assert_close(matrix, torch.eye(3), rtol=0, atol=2e-3)


def test_a_permutation_moves_streams_as_in_the_authors_code():
    """Number 3 of the lexicographic order is p = (1, 2, 0), whose inverse is another permutation."""
    connection: Any = build_connection("mhc_lite:streams=3", 2, place=places_of("encoder", 3, 0)[0]).double()
    logits = torch.full((6,), -math.inf, dtype=torch.float64)
    logits[3] = 0
    streams = torch.tensor([[1.0, 10], [2, 20], [3, 30]], dtype=torch.float64)
    moved = connection.residual_weights(logits).mT @ streams
    assert moved.tolist() == [[3, 30], [1, 10], [2, 20]]  # stream 0 to 1, 1 to 2, 2 to 0


def test_a_mixture_of_permutations_is_doubly_stochastic():
    connection: Any = build_connection("mhc_lite", 4, place=places_of("encoder", 3, 0)[0])
    logits = 3 * torch.randn(7, 24, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    matrix = connection.residual_weights(logits)
    assert (matrix >= 0).all()
    for dimension in (-1, -2):
        torch.testing.assert_close(matrix.sum(dimension), torch.ones(7, 4, dtype=torch.float64), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("layers", "scales", "inputs"), [
    (1, [1.15], [0.2]), (3, [1.15, 1.10, 1.05], [0.2, 0.125, 0.05])])  # fmt: skip
def test_x0_starts_as_in_nanochat(layers, scales, inputs):
    """Its loops over layers, 1.15 - 0.10·i/(n - 1) and 0.20 - 0.15·i/(n - 1), by hand."""
    for stack, blocks_a_layer in (("encoder", 2), ("decoder", 3)):
        connections: Any = Stack("x0", stack, layers=layers).connections
        assert [each.skip_weight.item() for each in connections[::blocks_a_layer]] == pytest.approx(scales)
        assert [each.input_weight.item() for each in connections[::blocks_a_layer]] == pytest.approx(inputs)
        others = [each for number, each in enumerate(connections) if number % blocks_a_layer]
        assert all(each.skip_weight is each.input_weight is None for each in others)


def test_gpas_scales_the_output_and_not_the_gradient(assert_same):
    """1 - silu(1) = 1 - 1/(1 + e⁻¹) = 1/(1 + e)."""
    connection: Any = build_connection("gpas", 4).double()
    nn.init.ones_(connection.damping)
    x, f = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_(), 1.0
    y = connection(x, torch.full_like(x, f))
    torch.testing.assert_close(y, (x + f) / (1 + math.e), rtol=1e-12, atol=0)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(gradient, torch.ones_like(x))


def test_an_orthogonal_update_keeps_the_part_along_x():
    x, f = torch.randn(2, 6, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    update = build_connection("orthogonal", 5)(x, f) - x
    assert ((update * x).sum(-1).abs() < 1e-5).all() and (update.norm(dim=-1) <= f.norm(dim=-1)).all()
    torch.testing.assert_close(build_connection("orthogonal", 5)(x, 2 * x), x, rtol=1e-5, atol=1e-5)
    as_images = build_connection("orthogonal", 5, feature_dim=1)
    torch.testing.assert_close(as_images(x[..., None, None], f[..., None, None])[..., 0, 0], x + update)


def test_ngpt_moves_on_the_sphere():
    connection: Any = build_connection("ngpt", 16).double()
    x, f = torch.randn(2, 3, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = connection(x, f)
    torch.testing.assert_close(y.square().mean(-1), torch.ones(3, dtype=torch.float64), rtol=1e-4, atol=0)
    unit_x, unit_f = x / x.norm(dim=-1, keepdim=True), f / f.norm(dim=-1, keepdim=True)
    expected = unit_x + 0.05 * (unit_f - unit_x)
    torch.testing.assert_close(y / 4, expected / expected.norm(dim=-1, keepdim=True), rtol=1e-4, atol=1e-5)
    nn.init.zeros_(connection.step_weight)
    torch.testing.assert_close(connection(x, f), connection.branch_input(x), rtol=1e-4, atol=0)


@pytest.mark.parametrize(("init", "beta"), [(1, 1), (0.5, 0.5), (1.9, 1.9)])
def test_deep_delta_replaces_the_part_of_x_along_f(init, beta):
    """With w = u = 0: β is `init`, v = 2, so k·y = k·x + β(2 - k·x), and what is orthogonal to f stays."""
    connection: Any = build_connection(f"ddl:init={init}", 5).double()
    nn.init.zeros_(connection.step.weight)
    nn.init.zeros_(connection.target.weight)
    x, f = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    k = f / f.norm(dim=-1, keepdim=True)
    y = connection(x, f)
    before, after = (k * x).sum(-1, keepdim=True), (k * y).sum(-1, keepdim=True)
    torch.testing.assert_close(after, before + beta * (2 - before), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(y - after * k, x - before * k, rtol=1e-6, atol=1e-6)


def test_sinkhorn_is_doubly_stochastic_and_keeps_what_is_uniform():
    logits = 3 * torch.randn(7, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    matrix = sinkhorn(logits, 200)
    for dimension in (-1, -2):
        torch.testing.assert_close(matrix.sum(dimension), torch.ones(7, 4, dtype=torch.float64), rtol=0, atol=1e-4)
    torch.testing.assert_close(sinkhorn(torch.zeros(4, 4), 20), torch.full((4, 4), 0.25), rtol=0, atol=1e-5)


def test_sinkhorns_gradient_is_that_of_its_divisions_and_autocast_changes_nothing():
    def divided(logits):
        matrix = logits.softmax(-1) + 1e-6
        for step in range(5):
            matrix = matrix / (matrix.sum(-1 if step % 2 else -2, keepdim=True) + 1e-6)
        return matrix

    generator = torch.Generator().manual_seed(0)
    logits, factors = (torch.randn(2, 3, 4, 4, generator=generator, dtype=torch.float64) for _ in range(2))
    (expected,) = torch.autograd.grad((factors * divided(logits.requires_grad_())).sum(), logits)
    (found,) = torch.autograd.grad((factors * sinkhorn(logits, 3)).sum(), logits)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(sinkhorn(logits, 3), divided(logits), rtol=1e-12, atol=1e-12)
    rounded, found = logits.float(), {}
    for enabled in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            found[enabled] = sinkhorn(rounded, 3)
    assert torch.equal(found[True], found[False])


def deepnorm_factors(stack: str, layers: int, others: int) -> tuple[float, float]:
    connection: Any = build_connection(
        "deepnorm", 4, place=places_of(stack, layers, others)[0], host_supplies=HOST_NEEDS
    )
    return connection.formula.y.of.parts[0][0].value, connection.branch_gain


def test_deepnorms_factors_are_the_papers():
    """Its Table 1; the encoder-decoder ones of 6 + 6 layers by hand."""
    assert deepnorm_factors("encoder", 6, 6) == pytest.approx((1.4180, 0.4970), abs=1e-4)
    assert deepnorm_factors("decoder", 6, 6) == pytest.approx((18**0.25, 72**-0.25))
    assert deepnorm_factors("decoder", 6, 0) == deepnorm_factors("decoder", 6, 6)  # its encoder may be of another kind
    assert deepnorm_factors("encoder", 100, 0) == pytest.approx((200**0.25, 800**-0.25))
    assert deepnorm_factors("encoder", 18, 6) == pytest.approx(
        (0.81 * (18**4 * 6) ** (1 / 16), 0.87 * (18**4 * 6) ** (-1 / 16))
    )


def test_an_adaptive_skip_starts_by_depth():
    """At the depth of a Transformer, of a PreAct-ResNet-110, and where the rule gives less than a learned λ can be."""
    layers_6 = {stack: places_of(stack, 6, 6)[0] for stack in BRANCHES}
    resnet_110 = Place("network", "block", 1, 54, 1, 54)
    for place, alpha in [(layers_6["encoder"], 1.4180), (layers_6["decoder"], 18**0.25), (resnet_110, 2.7108)]:
        learned: Any = build_connection("askip+ln", 4, place=place)
        assert learned.kernel_form().scale.item() == pytest.approx(alpha, abs=1e-4)
        recursive: Any = build_connection("askip+bn:form=recursive", 4, feature_dim=1, place=place)
        assert recursive.norms[0].weight.tolist() == pytest.approx([1 / alpha] * 4, abs=1e-4)
        assert recursive.norms[1].weight.tolist() == [1] * 4
    shallow: Any = build_connection("askip+ln", 4, place=places_of("encoder", 1, 1)[0])
    assert shallow.kernel_form().scale.item() == pytest.approx(1.05)
    mixture: Any = build_connection("askip+ln:form=mixture", 4, place=layers_6["encoder"])
    assert mixture.logits.tolist() == [0, 2, 0]


@pytest.mark.parametrize(
    ("stack", "layers", "others", "gain"),
    [
        ("encoder", 6, 6, 1.5473),
        ("decoder", 6, 6, 1.7001),
        ("decoder", 6, 0, 1.7001),
        ("encoder", 6, 0, 1.5764),
        ("encoder", 18, 6, 1.8581),
    ],
)
def test_sublns_gains_are_the_papers(stack, layers, others, gain):
    """By hand: √(ln 18·ln 12/3), √ln 18, √ln 12, √(ln 18·ln 36/3); torchscale leaves out attention to the encoder."""
    for place in places_of(stack, layers, others):
        connection = build_connection("subln", 4, place=place, host_supplies=HOST_NEEDS)
        inner = {"hidden": "ln"} if place.branch == "ffn" else {"heads": "ln"}
        expected, inside = (1.0, {}) if place.branch == "encoder_attn" else (gain, inner)
        assert connection.branch_gain == pytest.approx(expected, abs=1e-4)
        assert connection.inner_norms == inside


def test_denseformers_weights_grow_with_the_layer():
    weights = [connection.weights for connection in Stack("denseformer", layers=3).connections]
    assert [None if each is None else each.tolist() for each in weights] == [
        None, [0, 1], None, [0, 0, 1], None, [0, 0, 0, 1],
    ]  # fmt: skip


@pytest.mark.parametrize(("layers", "value"), [(6, 0.1), (18, 0.1), (24, 1e-5), (36, 1e-6)])
def test_layerscale_starts_by_depth(layers, value):
    place = Place("encoder", "ffn", 2, 2 * layers, 1, layers, 1)
    connection: Any = build_connection("layerscale+ln", 4, place=place)
    assert torch.all(connection.branch_weight == value)
    given: Any = build_connection("layerscale+ln:init=0.5", 4, place=place)
    assert torch.all(given.branch_weight == 0.5)


REFUSED = [  # spec, feature_dim, a part of what is expected
    *((spec, dim, "a block position") for spec, dim in (("deepnorm", -1), ("b2t", -1), ("layerscale", 1))),
    *((spec, 1, "passes on several streams") for spec in ("hyper", "residual_dual", "x0")),
    *((spec, 1, "passes on earlier layers' outputs") for spec in ("denseformer", "attnres", "mudd")),
    *((spec, 1, "works only on sequences") for spec in (
        "admin", "keel", "layerscale+ln", "hybridnorm", "normformer", "subln", "laurel+rms", "sas:host=prenorm",
        "frac", "ddl",
    )),
    ("attnres:blocks=2,layers=1", -1, "blocks only with layers=0"),
    ("attnres:blocks=0", -1, "a whole number from 1 to 1000000"),
    ("hyper:streams=0", -1, "a whole number from 1 to 64"),
    ("mhc:iterations=1.5", -1, "a whole number from 1 to 1000"),
    ("mhc_lite:streams=7", -1, "a whole number from 1 to 6"),
    ("mixln:ratio=1.5", -1, "a number from 0 to 1"),
    ("laurel:form=rw,rank=3", -1, "rank only with form=lr"),
    ("laurel:bound=softmax", -1, "bound only with form=rw"),
    ("askip+ln:form=depth,rate=1", -1, "rate only with form=learned"),
    ("mhc:iterations=5,residual=identity", -1, "iterations only with residual=sinkhorn"),
    ("mhc:exit=head,reads=previous", -1, "exit only with reads=own"),
    ("hyper:form=fast", -1, "dynamic or static"),
    ("rezero+ln", -1, "without a normalisation"),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "feature_dim", "expected"), REFUSED)
def test_what_a_family_cannot_do_is_refused_in_one_line(spec, feature_dim, expected):
    with pytest.raises(SettingError, match=f"^connection is .*{expected}.*$"):
        build_connection(spec, 4, feature_dim=feature_dim)


def test_a_place_that_cannot_be_is_refused():
    for changes in (
        {"stack": "Encoder"}, {"branch": "encoder_attn"}, {"layers": 0}, {"other_layers": -1}, {"sublayers": 5},
        {"sublayer": 3}, {"sublayer": 5},
    ):  # fmt: skip
        with pytest.raises(SettingError, match="^place is "):
            dataclasses.replace(Place("encoder", "ffn", 2, 4, 1, 2, 2), **changes)


@pytest.mark.parametrize(
    "spec", ["siamese", "residual_dual", "denseformer", "attnres", "hyper", "mhc", "mhc_lite", "x0", "mudd"]
)
def test_the_stacks_input_itself_is_no_state(spec):
    connection = build_connection(spec, 4, place=Place("encoder", "ffn", 2, 4, 1, 2, 2))
    x = torch.zeros(2, 3, 4)
    for call in (connection.before, build_stack_connection(spec, 4).leave):
        with pytest.raises((TypeError, AssertionError), match="state"):
            call(x)


COUNTS: dict[str, Any] = {  # of a block, and of a stack if it has any
    "1xskip": lambda h: 0,
    "1xskip+ln": lambda h: 2 * h,
    "2xskip+rms": lambda h: h,
    "2xskip+gn1": lambda h: 2 * h,
    "1rskip+ln": lambda h: 2 * h,
    "5rskip+ln": lambda h: 10 * h,
    "3rskip+rms": lambda h: 3 * h,
    "wskip+ln": lambda h: 3 * h,
    "sas": lambda h: 2 * (2 * h**2 + h + h + 1) + 2 * h,
    "sas+rms": lambda h: 2 * (2 * h**2 + h + h + 1) + h,
    "sas:gamma=free": lambda h: 3 * (2 * h**2 + h + h + 1) + 2 * h,
    "sas:norm_term=false": lambda h: 2 * (2 * h**2 + h + h + 1),
    "sas:gate=single": lambda h: 2 * (2 * h + 1) + 2 * h,
    "sas:gamma=free,gate=single": lambda h: 3 * (2 * h + 1) + 2 * h,
    "highway": lambda h: h**2 + h,
    "highway:gate=shortcut": lambda h: h**2 + h,
    "highway:gate=single": lambda h: 2 * h + 1,
    "highway:gate=full": lambda h: 2 * h**2 + 2 * h + 1,
    "prenorm+ln": lambda h: 2 * h,
    "askip+ln": lambda h: 2 * h + 1,
    "askip+ln:form=recursive": lambda h: 4 * h,
    "askip+ln:form=mixture": lambda h: 6 * h + 3,
    "deepnorm": lambda h: 2 * h,
    "rezero": lambda h: 1,
    "layerscale": lambda h: h,
    "layerscale+ln": lambda h: 3 * h,
    "sandwich": lambda h: 4 * h,
    "periln": (lambda h: 4 * h, lambda h: 2 * h),
    "lns": lambda h: 2 * h,
    "mixln": lambda h: 2 * h,
    "keel": lambda h: 4 * h,
    "laurel": lambda h: 32 * h,
    "laurel+ln:form=rw": lambda h: 2 * h + 2,
    "residual_dual": (lambda h: 2 * h, lambda h: 2 * h),
    "b2t": lambda h: 2 * h,
    "siamese": (lambda h: 6 * h, lambda h: 6 * h),
    "denseformer": lambda h: 2 * h,  # of a layer's first block
    "admin": lambda h: 3 * h,
    "attnres": (lambda h: 2 * h, lambda h: 2 * h),  # of the stack's first block
    "hyper": lambda h: 10 * h + 26,
    "hyper:form=static": lambda h: 2 * h + 24,
    "mhc": lambda h: 98 * h + 27,
    "mhc:residual=identity": lambda h: 34 * h + 10,
    "mhc:exit=head": (lambda h: 98 * h + 27, lambda h: 16 * h + 5),
    "mhc:reads=previous": lambda h: 98 * h + 27,
    "mhc_lite": lambda h: 130 * h + 35,
    "gated_residual": (lambda h: 276 * h, lambda h: 260 * h),
    "lanes": (lambda h: 2 * h + 2, lambda h: 1),  # of a layer with one lane
    "x0:backout=true": (lambda h: 2 * h + 2, lambda h: 1),
    "attnres:queries=3": (lambda h: 6 * h, lambda h: 2 * h),
    "x0": lambda h: 2 * h + 2,  # of a layer's first block
    "gpas": lambda h: 2 * h + 1,
    "orthogonal": lambda h: 0,
    "orthogonal+ln": lambda h: 2 * h,
    "ngpt": lambda h: h,
    "ddl": lambda h: 4 * h + 2,
    "mudd": lambda h: 2 * h,  # of a layer's first block
    "frac:parts=1": lambda h: 7 * h + 5,
    "frac:form=static,parts=1": lambda h: 2 * h + 3,
    "subln": lambda h: 2 * h,
    "normformer": lambda h: 2 * h,
    "hybridnorm": lambda h: 2 * h,  # of the block before the feed-forward
}


def test_the_number_of_parameters_is_the_formulas():
    """By the number of features h; tests of the models have the papers' numbers."""
    for spec, counts in COUNTS.items():
        of_block, of_stack = counts if isinstance(counts, tuple) else (counts, lambda h: 0)
        for features in (1, 7, 64):
            with torch.device("meta"):
                place, dim = places_of("encoder", 6, 6)[0], -1 if works_on(spec, -1) else 1
                block = build_connection(spec, features, feature_dim=dim, place=place, host_supplies=HOST_NEEDS)
                stack = build_stack_connection(spec, features)
            assert sum(each.numel() for each in block.parameters()) == of_block(features), spec
            assert sum(each.numel() for each in stack.parameters()) == of_stack(features), spec


@pytest.mark.parametrize("spec", [*STACK_FORMULAS, "residual_dual+rms"])
def test_a_stack_in_half_precision_is_near_its_float64_self(spec):
    """A layer of it: more would overflow with drawn parameters, where no norm bounds them."""
    torch.manual_seed(0)
    drawn = Stack(spec, layers=1).draw()
    for dtype, rounding in ((torch.bfloat16, 2.0**-8), (torch.float16, 2.0**-11)):
        x = drawn_input().to(dtype)
        exact = drawn(x.double())
        for in_module in (True, False):  # else by autocast
            model = copy.deepcopy(drawn).to(dtype if in_module else torch.float32)
            with torch.autocast("cpu", dtype=dtype, enabled=not in_module):
                y = model(x if in_module else x.float())
            assert y.dtype == (dtype if in_module else torch.float32)
            torch.testing.assert_close(y.double(), exact, rtol=0, atol=30 * rounding * exact.abs().max().item())
            y.sum().backward()
            assert all(each.grad is not None and each.grad.isfinite().all() for each in model.parameters())
