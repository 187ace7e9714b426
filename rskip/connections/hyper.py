"""Hyper-connections and their manifold-constrained form: several streams that are mixed around every branch."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal

import torch
from torch import Tensor, nn

from rskip.connections.connection import Connection, Mixing, StackConnection, State, opened, tensors
from rskip.connections.linear import Fill, Values
from rskip.connections.norms import EPS, at_least_float32, build_norm, under_autocast, without_autocast
from rskip.connections.sinkhorn import EPS as SINKHORN_EPS
from rskip.connections.sinkhorn import sinkhorn
from rskip.connections.stream_kernels import (
    MANIFOLD,
    RMS_NORM,
    UNFUSED,
    Kernels,
    Parameters,
    Reads,
    described,
    dynamic_reading,
    fused,
    library_for,
    read_streams,
    readable,
    reads_of,
    widened,
    write_streams,
)
from rskip.cpu.library import Library
from rskip.formulas.parameters import Bounds, TextNorm
from rskip.formulas.place import Place
from rskip.formulas.registry import register_connection
from rskip.settings.errors import SettingError

Streams = Annotated[int, Bounds(1, 64)]
Exit = Literal["sum", "mean", "head"]
Eps = Annotated[float, Bounds(0, 1)]
Start = Literal["megatron", "deepseek", "hy4", "home"]
SMALL = 0.01  # initial factor of the data-dependent part

_normal: Fill = partial(nn.init.normal_, std=0.02)


def started(start: Start, streams: int) -> tuple[Fill, float, float]:
    """Initial values of the gates that read streams: φ, a, and each bias of α. The biases of β and R start at 0."""
    if start == "deepseek":
        return _normal, 1.0, 0.0
    if start == "hy4":
        return _normal, SMALL, -math.log(max(streams - 1, 1))  # α is near 1/n
    return nn.init.xavier_uniform_, SMALL, 0.0


class CopiedStreams(StackConnection):
    """The stack starts with n copies of x, h (..., n, C), and ends with Σ_k h_k, with exit=mean Σ_k h_k/n.

    With exit=head it ends with Σ_k (σ(a·(RMS(h_1, ..., h_n)·φ)_k + b_k) + ε)·h_k, where ε is `gate_eps` and a, φ and b
    start as those of mhc's α. Members with exit=head: `mixing` (φ, (n, nC)), `scale` (a, 1), `bias` (b, n).
    """

    def __init__(
        self,
        features: int,
        *,
        streams: int,
        exit: Exit = "sum",
        start: Start = "megatron",
        gate_eps: float = 0.0,
        **settings: Any,
    ) -> None:
        super().__init__()
        self.streams, self.features, self.exit, self.gate_eps, self.eps = streams, features, exit, gate_eps, EPS
        if exit == "head":
            mixing, scale, bias = started(start, streams)
            self.mixing = self.learned("mixing", mixing, streams, streams * features)
            self.scale = self.learned("scale", scale, 1)
            self.bias = self.learned("bias", bias, streams)

    def enter(self, x: Tensor) -> State:
        x = widened(x)
        return x.unsqueeze(-2).expand(*x.shape[:-1], self.streams, -1)

    def leave(self, state: State) -> Tensor:
        streams = streams_of(state, self)
        if self.exit != "head":
            return streams.sum(-2) if self.exit == "sum" else streams.mean(-2)
        library, given = library_for(streams), list(map(self._parameters.get, ("mixing", "scale", "bias")))
        if isinstance(library, Library) and readable(*given):
            reads = reads_of(
                MANIFOLD, self.streams, self.features, self.streams, *UNFUSED[:2], RMS_NORM, self.eps,
                alpha_epsilon=self.gate_eps,
            )  # fmt: skip
            parameters = given[0], None, None, None, given[1], None, given[2], *[None] * 6
            return read_streams(library, (reads, parameters), nn.Identity(), streams)[0]
        found = self.scale * projected(streams, self.mixing, self.eps) + self.bias
        return read(torch.sigmoid(found) + self.gate_eps, streams)


class StreamsAndReads(CopiedStreams):
    """With reads=previous the state is h and the α of the next block (..., n), first (1, 0, ..., 0).

    The stack ends with Σ_k α_k·h_k. Otherwise it is `CopiedStreams`.
    """

    def __init__(self, features: int, *, reads: str, **settings: Any) -> None:
        super().__init__(features, **settings)
        self.reads = reads

    def enter(self, x: Tensor) -> State:
        streams: Tensor = super().enter(x)  # type: ignore[assignment]
        if self.reads == "own":
            return streams
        first = torch.eye(1, self.streams, dtype=at_least_float32(x[..., :0]).dtype, device=x.device)[0]
        return opened(streams, first.expand(*x.shape[:-1], -1))

    def leave(self, state: State) -> Tensor:
        if self.reads == "own":
            return super().leave(state)
        streams, reads = tensors(state, self, 2)
        return read(reads, streams)


class StreamsConnection(Connection):
    """x = norm(Σ_j α_j·h_j) and h_k ← Σ_j R_jk·h_j + β_k·f. A class defines `weights`. Members: `norm`."""

    norm: nn.Module
    streams: int
    recomputed = 0  # k: the backward pass computes the states again that are not before every k-th block; 0: none

    def __init_subclass__(cls, **settings: Any) -> None:
        """A class with weights of its own does not inherit how the kernels compute another's."""
        super().__init_subclass__(**settings)
        if {"weights", "residual_weights"} & vars(cls).keys() and "kernel_reading" not in vars(cls):
            cls.kernel_reading = StreamsConnection.kernel_reading  # type: ignore[method-assign]

    def extra_repr(self) -> str:
        parameter = next(self.parameters())
        library = self._library(parameter.new_empty(1, self.streams, self.features))
        return f"{super().extra_repr()}, computed by {described(library if self.kernel_reading() else None)}"

    def _library(self, streams: Tensor) -> Kernels | None:
        return library_for(streams)

    def weights(self, streams: Tensor) -> tuple[Tensor, Tensor]:
        """α and R, concatenated (..., n, 1 + n), and β (..., n, 1), for h (..., n, C). Only α, if R is the identity."""
        raise NotImplementedError

    def kernel_reading(self) -> tuple[Reads, Parameters] | None:
        """`weights` and the norm as the kernels compute them; None if they can't."""
        return None

    def as_mixing(self, state: State, f: Tensor) -> Mixing:
        weights, outputs = self.weights(streams_of(state, self))
        reads, mixes = weights[..., 0], weights[..., 1:]
        carries = mixes.transpose(-1, -2) if mixes.size(-1) else torch.eye(self.streams, dtype=weights.dtype)
        return Mixing(reads=reads, carries=carries, adds=outputs.squeeze(-1))

    def parts(self, state: State) -> Tensor:
        return streams_of(state, self)

    def before(self, state: State) -> tuple[Tensor, State]:
        streams = streams_of(state, self)
        library = self._library(streams)
        if library and (found := self.kernel_reading()):
            return read_streams(library, found, self.norm, streams, self.recomputed)
        weights, outputs = self.weights(streams)
        sums = weighted_sums(weights, streams)
        mixed = streams if sums.size(-2) == 1 else sums.narrow(-2, 1, self.streams)
        return self.norm(sums.select(-2, 0).contiguous()), (mixed, outputs)  # a view would keep all sums in memory

    def after(self, kept: State, f: Tensor) -> State:
        mixed, outputs = kept
        if outputs.size(-1) > 1:  # all weights of a position in one row, as the kernels keep them
            return write_streams(mixed, outputs, f)
        new = torch.addcmul(mixed, outputs, f.unsqueeze(-2))
        return new if new.dtype == mixed.dtype else new.to(mixed.dtype)


def streams_of(state: State, user: CopiedStreams | StreamsConnection) -> Tensor:
    """The state as h (..., n, C)."""
    fits = isinstance(state, Tensor) and state.shape[-2:] == (user.streams, user.features)
    assert fits, "not a state of this family: call enter, and run every block in order"
    return state  # type: ignore[return-value]


def weighted_sums(weights: Tensor, values: Tensor) -> Tensor:
    """Σ_j w_jk·v_j (..., m, C), in v's type, of w (..., n, m) or (n, m) and v (..., n, C).

    w is expanded first, because a product with one small matrix for all positions is slower.
    """
    if weights.dim() < values.dim():
        weights = weights.expand(*values.shape[:-2], -1, -1)
    if weights.dtype == values.dtype and not under_autocast(values.device):
        return weights.mT @ values
    dtype = torch.promote_types(weights.dtype, values.dtype)
    with without_autocast(values.device):
        return (weights.mT.to(dtype) @ values.to(dtype)).to(values.dtype)


def projected(streams: Tensor, mixing: Tensor, eps: float) -> Tensor:
    """RMS(h_1, ..., h_n)·φ (..., m) in float32 or better, for h (..., n, C) and φ (m, nC)."""
    values = at_least_float32(streams.flatten(-2))  # (..., nC)
    root = torch.rsqrt(values.square().mean(-1, keepdim=True) + eps)
    with without_autocast(values.device):
        return nn.functional.linear(values, mixing.to(values.dtype)) * root


def read(weights: Tensor, streams: Tensor) -> Tensor:
    """Σ_k w_k·h_k (..., C), in h's type, of w (..., n) and h (..., n, C)."""
    return weighted_sums(weights.unsqueeze(-1), streams).squeeze(-2)


@register_connection("hyper", source="Zhu et al. 2025, Eq. 1 to 14; exit=head: DeepSeek-V4; exit=mean: GLM-5.3")
class HyperConnection(StreamsConnection):
    """h_k ← Σ_j R_jk·h_j + β_k·f, where f = F(norm(Σ_j α_j·h_j)), for n streams h; the stack gives Σ_k h_k.

    α (n), R (n, n) and β (n) are learned. With form=dynamic a data-dependent term a·tanh(z_j·W) is added to each,
    where z_j are stream j's normalised values. Initially α is one-hot at the block's number modulo n, R is the
    identity, β = 1, a = 0.01 and W = 0: on copied streams this is the pre-norm block.

    :param streams: n.
    :param form: static: α, R and β do not depend on the data.
    :param exit: what the stack gives: Σ_k h_k, its mean, or with head Σ_k g_k·h_k with learned gates g.

    Members: `norm`, `input_weights` (α), `stream_weights` (R), `output_weights` (β); dynamic: `stream_norm`,
    `mixing` (C, 1 + n) and `output_mixing` (C, 1) for W, `mixing_scale` and `output_scale` for a.
    """

    closing_norm = True
    stack = CopiedStreams

    def __init__(
        self,
        features: int,
        *,
        norm: TextNorm = "ln",
        streams: Streams = 4,
        form: Literal["dynamic", "static"] = "dynamic",
        exit: Exit = "sum",
        place: Place,
        feature_dim: int = -1,
    ) -> None:
        super().__init__(features, feature_dim=feature_dim)
        self.streams, self.form = streams, form
        identity = torch.eye(streams, device="cpu").tolist()
        self.norm = build_norm(norm, features, feature_dim)
        self.input_weights = self.learned("input_weights", identity[(place.sublayer - 1) % streams])
        self.stream_weights = self.learned("stream_weights", identity)
        self.output_weights = self.learned("output_weights", 1.0, streams)
        if form == "dynamic":
            self.stream_norm = build_norm(norm, features, feature_dim)
            self.mixing = self.learned("mixing", 0.0, features, 1 + streams)
            self.output_mixing = self.learned("output_mixing", 0.0, features, 1)
            self.mixing_scale = self.learned("mixing_scale", SMALL, 1)
            self.output_scale = self.learned("output_scale", SMALL, 1)

    @property
    def no_weight_decay(self) -> frozenset[str]:
        """Includes R: only the data-dependent W takes decay (Zhu et al. 2025, section 4, Implementation)."""
        return super().no_weight_decay | {"stream_weights"}

    def weights(self, streams: Tensor) -> tuple[Tensor, Tensor]:
        weights = torch.cat([self.input_weights.unsqueeze(-1), self.stream_weights], dim=1)
        outputs = self.output_weights.unsqueeze(-1)
        if self.form == "static":
            return weights, outputs
        normalised = self.stream_norm(streams)
        return (
            torch.addcmul(weights, self.mixing_scale, torch.tanh(normalised @ self.mixing)),
            torch.addcmul(outputs, self.output_scale, torch.tanh(normalised @ self.output_mixing)),
        )

    def kernel_reading(self) -> tuple[Reads, Parameters] | None:
        return dynamic_reading(self, "stream_norm", "input_weights", "stream_weights", streams=self.streams)

    def _library(self, streams: Tensor) -> Kernels | None:
        return library_for(streams, triton=self.form == "dynamic")


class ManifoldStreams(StreamsConnection):
    """hyper's formula with α = σ(u) + ε, β = m·σ(v) and R from w, where (u, v, w) = a·RMS(h_1, ..., h_n)·φ + b.

    RMS divides all nC values by their root mean square. u, v and w are computed per position, in float32 or better.
    Without w, R is the identity and β = m·σ(v) + ε. ε is the attribute `gate_eps`, m is `magnitude`. Members: `norm`,
    `mixing` (φ, rows for outputs), `scale` (a, one each for u, v and w), `bias` (b).

    :param logits: number of values in w; 0: R is the identity.
    :param mixing, scale, bias: initial values.
    """

    gate_eps, magnitude, iterations, sinkhorn_eps = 0.0, 2.0, 1, 0.0

    def __init__(
        self,
        features: int,
        *,
        norm: str,
        streams: int,
        logits: int,
        mixing: Values | Fill = nn.init.xavier_uniform_,
        scale: float = SMALL,
        bias: Values = 0.0,
        feature_dim: int,
    ) -> None:
        super().__init__(features, feature_dim=feature_dim)
        self.streams, self.logits, self.eps = streams, logits, EPS
        self.norm = build_norm(norm, features, feature_dim)
        self.mixing = self.learned("mixing", mixing, 2 * streams + logits, streams * features)
        self.scale = self.learned("scale", scale, 3 if logits else 2)
        self.bias = self.learned("bias", bias, 2 * streams + logits)

    def residual_weights(self, w: Tensor) -> Tensor:
        """R (..., n, n) from w (..., logits)."""
        raise NotImplementedError

    def _reading(self, matrices: Tensor | None = None) -> tuple[Reads, Parameters] | None:
        own = self._parameters.get  # `self.mixing` would take ten times as long
        mixing, scale, bias = own("mixing"), own("scale"), own("bias")
        if not readable(mixing, scale, bias) or matrices is not None and not readable(matrices):
            return None
        norm, epsilon, gain, shift = fused(self._modules["norm"])
        reads = reads_of(
            MANIFOLD, self.streams, self.features, 2 * self.streams + self.logits, norm, epsilon, RMS_NORM, self.eps,
            identity=not self.logits, iterations=self.iterations, alpha_epsilon=self.gate_eps,
            beta_epsilon=0.0 if self.logits else self.gate_eps, magnitude=self.magnitude,
            sinkhorn_epsilon=self.sinkhorn_eps,
        )  # fmt: skip
        of_values = mixing, None, None, None, scale, None, bias, matrices
        return reads, (*of_values, None, None, None, gain, shift)

    def weights(self, streams: Tensor) -> tuple[Tensor, Tensor]:
        sizes = [self.streams, self.streams, self.logits]
        u, v, w = projected(streams, self.mixing, self.eps).split(sizes, dim=-1)
        of_u, of_v, of_w = self.bias.split(sizes)
        weights = torch.sigmoid(self.scale[0] * u + of_u).unsqueeze(-1)
        outputs = self.magnitude * torch.sigmoid(self.scale[1] * v + of_v).unsqueeze(-1)
        if self.gate_eps:
            weights, outputs = weights + self.gate_eps, outputs if self.logits else outputs + self.gate_eps
        if self.logits:
            weights = torch.cat([weights, self.residual_weights(self.scale[2] * w + of_w)], dim=-1)
        return weights, outputs


@register_connection(
    "mhc",
    source="Xie et al. 2025, with the orientation of DeepSeek's kernels; initial biases 0 as in Megatron; "
    "residual=identity: Identity HC, tylerromero.com/translations/zhihu/your-deepseek-mhc-might-not-need-the-m, and "
    "Tencent Hy4; reads=previous: DeepSeek V4.1; exit=head: DeepSeek-V4; exit=mean: GLM-5.3; start=home: PaddleFleet's "
    "pull request 1849",
)
class ManifoldHyperConnection(ManifoldStreams):
    """hyper's formula, with α = σ(u), β = 2σ(v), R = sinkhorn(w), and u, v, w linear in all streams' values.

    (u, v, w) = a·RMS(h_1, ..., h_n)·φ + b (`ManifoldStreams`) have n, n and n² values per position. sinkhorn makes
    exp(w) doubly stochastic: it divides rows, then columns, by their sums. Initially a = 0.01 and b = 0, so α is about
    1/2, β about 1 and R about 1/n: on copied streams this is nearly the pre-norm block. φ is drawn at random, so the
    streams diverge.

    With reads=previous (single-pass mHC) a block reads with the α that the block before it computed from its own
    streams, the first block reads stream 1, and the stack gives Σ_k α_k·h_k with the last block's α.

    :param streams: n.
    :param residual: identity: R is the identity, without w.
    :param iterations: number of Sinkhorn iterations.
    :param reads: previous: α is that of the block before.
    :param magnitude: factor in place of 2 in β.
    :param gate_eps: value added to α, and with residual=identity to β.
    :param sinkhorn_eps: value that Sinkhorn's divisions add to entries and sums.
    :param exit: what the stack gives: Σ_k h_k, its mean, or with head Σ_k g_k·h_k with gates g like α.
    :param start: initial values. megatron: above. deepseek: a = 1, φ normal with a standard deviation of 0.02. hy4:
        such a φ, and α's biases -ln(n - 1), so α is about 1/n. home: α's biases 0 on the block's home stream (number of
        the block - 1) modulo n and -3 on others, R's biases 3 on the diagonal and -3 elsewhere.

    Members: those of `ManifoldStreams`.
    """

    closing_norm = True
    stack = StreamsAndReads
    only_with = {
        "iterations": ("residual", "sinkhorn"),
        "sinkhorn_eps": ("residual", "sinkhorn"),
        "exit": ("reads", "own"),
    }

    def __init__(
        self,
        features: int,
        *,
        norm: TextNorm = "ln",
        streams: Streams = 4,
        residual: Literal["sinkhorn", "identity"] = "sinkhorn",
        iterations: Annotated[int, Bounds(1, 1000)] = 20,
        reads: Literal["own", "previous"] = "own",
        magnitude: Annotated[float, Bounds(0, 100)] = 2,
        gate_eps: Eps = 0,
        sinkhorn_eps: Eps = SINKHORN_EPS,
        exit: Exit = "sum",
        start: Start = "megatron",
        place: Place | None = None,
        feature_dim: int = -1,
    ) -> None:
        logits = streams * streams if residual == "sinkhorn" else 0
        mixing, scale, of_reads = started(start, streams)
        bias: Values = [of_reads] * streams + [0.0] * (streams + logits) if of_reads else 0.0
        if start == "home":
            if place is None:
                raise SettingError.of_value("place", place, "a block position, which start=home depends on")
            own = (place.sublayer - 1) % streams
            of_residual = [3.0 if j == k else -3.0 for j in range(streams) for k in range(streams)]
            bias = [0.0 if k == own else -3.0 for k in range(streams)] + [0.0] * streams + of_residual[:logits]
        super().__init__(
            features,
            norm=norm,
            streams=streams,
            logits=logits,
            mixing=mixing,
            scale=scale,
            bias=bias,
            feature_dim=feature_dim,
        )
        self.iterations, self.sinkhorn_eps, self.reads = iterations, sinkhorn_eps, reads
        self.gate_eps, self.magnitude = gate_eps, magnitude

    def residual_weights(self, w: Tensor) -> Tensor:
        return sinkhorn(w.unflatten(-1, (self.streams, self.streams)), self.iterations, self.sinkhorn_eps)

    def kernel_reading(self) -> tuple[Reads, Parameters] | None:
        return self._reading()

    def _library(self, streams: Tensor) -> Kernels | None:
        return library_for(streams, triton=self.reads == "own")

    def before(self, state: State) -> tuple[Tensor, State]:
        if self.reads == "own":
            return super().before(state)
        streams, reads = tensors(state, self, 2)
        tensors(state[:1], self)  # the first α never requires gradients, so it does not tell whether any are lost
        library = self._library(streams_of(streams, self))
        if library and (found := self.kernel_reading()):
            x, kept = read_streams(library, found, self.norm, streams, self.recomputed, reads)
            return x, (*kept, kept[1][..., : self.streams])
        weights, outputs = self.weights(streams)
        mixed = weighted_sums(weights[..., 1:], streams) if self.logits else streams
        return self.norm(read(reads, streams)), (mixed, outputs, weights[..., 0])

    def after(self, kept: State, f: Tensor) -> State:
        if self.reads == "own":
            return super().after(kept, f)
        return super().after(kept[:2], f), kept[2]  # type: ignore[return-value]

    def parts(self, state: State) -> Tensor:
        return super().parts(state if self.reads == "own" else state[0])

    def as_mixing(self, state: State, f: Tensor) -> Mixing:
        if self.reads == "own":
            return super().as_mixing(state, f)
        streams, reads = tensors(state, self, 2)
        return replace(super().as_mixing(streams, f), reads=reads)
