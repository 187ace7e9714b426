"""Multi-head attention. B batch, H heads, T queries, S keys, C features, D = C / H."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from rskip.connections import Connection, build_norm
from rskip.connections.linear import Linear
from rskip.formulas.terms import InnerNorm
from rskip.transformer.rotary import Rotation
from rskip.transformer.value_residual import FirstValues, ValueResidual


@dataclass
class KeyValue:
    """Projected keys and values, each (B, H, S, D); with grouped queries H is the number of their own heads."""

    key: Tensor
    value: Tensor


def additive_mask(hidden: Tensor, like: Tensor) -> Tensor:
    """An additive mask in the type of `like`: 0 where `hidden` is false, -inf where it is true."""
    zeros = torch.zeros(hidden.shape, dtype=like.dtype, device=like.device)
    return zeros.masked_fill_(hidden, float("-inf"))


def _backend(query: Tensor, *, causal: bool) -> AbstractContextManager[None]:
    """A context that avoids torch's fused attention in training on CPUs, where its backward pass is slower than plain
    matrix products: 4.6 times slower in bfloat16 (docs/speed.md). Causal attention in float32 is faster when
    fused."""
    fused = causal and query.dtype == torch.float32
    if query.device.type == "cpu" and query.requires_grad and not fused:
        return sdpa_kernel(SDPBackend.MATH)
    return nullcontext()


def build_inner_norm(connection: Connection, where: InnerNorm, features: int) -> nn.Module | None:
    """The normalisation that the connection has at this position in its branch, or None."""
    norm = connection.inner_norms.get(where)
    return None if norm is None else build_norm(norm, features)


class MultiHeadAttention(nn.Module):
    """softmax(QKᵀ/√D)V in H heads (Vaswani et al. 2017, section 3.2.2). Member names are fairseq's, except for the
    parts that a connection adds inside the branch.

    :param key_value_heads: heads of keys and values, each of which serves H / `key_value_heads` heads of queries; None:
        H.
    """

    def __init__(
        self,
        features: int,
        heads: int,
        *,
        memory_features: int | None = None,
        key_value_heads: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.heads, self.head_features = heads, features // heads
        self.queries_per_key = heads // (key_value_heads or heads)
        self.dropout = dropout
        memory_features = features if memory_features is None else memory_features
        self.k_proj = Linear(memory_features, features // self.queries_per_key)
        self.v_proj = Linear(memory_features, features // self.queries_per_key)
        self.q_proj = Linear(features, features)
        self.out_proj = Linear(features, features)
        gain = 1 / math.sqrt(2) if memory_features == features else 1.0
        for projection in (self.k_proj, self.v_proj, self.q_proj):
            projection.first_weight = partial(nn.init.xavier_uniform_, gain=gain)
            projection.first_weight(projection.weight)
        self.out_proj.first_weight, self.out_proj.first_bias = nn.init.xavier_uniform_, 0.0
        nn.init.xavier_uniform_(self.out_proj.weight)
        nn.init.zeros_(self.out_proj.bias)
        self.value_residual: ValueResidual | None = None
        self.query_norm: nn.Module | None = None
        self.key_norm: nn.Module | None = None
        self.value_norm: nn.Module | None = None
        self.head_scale: nn.Parameter | None = None
        self.heads_norm: nn.Module | None = None
        self.output_norm: nn.Module | None = None

    def build_inside(self, connection: Connection) -> None:
        """Builds the parts that the connection adds inside this branch: members `head_scale` and `<where>_norm`."""
        features = self.out_proj.out_features
        self.query_norm = build_inner_norm(connection, "query", self.head_features)
        self.key_norm = build_inner_norm(connection, "key", self.head_features)
        self.value_norm = build_inner_norm(connection, "value", self.head_features)
        self.head_scale = nn.Parameter(torch.ones(self.heads)) if connection.scales_heads else None
        self.heads_norm = build_inner_norm(connection, "heads", features)
        self.output_norm = build_inner_norm(connection, "output", features)

    def reset_parameters(self) -> None:
        """Sets every parameter to its initial value."""
        for module in self.children():
            module.reset_parameters()  # type: ignore[operator]
        if self.head_scale is not None:
            nn.init.ones_(self.head_scale)

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.head_features)).transpose(1, 2)  # (B, T, C) -> (B, H, T, D)

    def project(
        self,
        memory: Tensor,
        first: FirstValues | None = None,
        rotation: Rotation | None = None,
        value_input: Tensor | None = None,
    ) -> KeyValue:
        """Keys and values of `memory` (B, S, C). `first` holds the first layer's values, in self-attention.

        `rotation` rotates the keys by their positions. Values are those of `value_input`, if there is one.
        """
        key = self._split(self.k_proj(memory))
        value = self._split(self.v_proj(memory if value_input is None else value_input))
        if self.key_norm is not None:
            key = self.key_norm(key)
        if rotation is not None:
            key = rotation(key)
        if self.value_norm is not None:
            value = self.value_norm(value)
        if self.value_residual is not None:
            assert first is not None
            value = self.value_residual(value, first)
        return KeyValue(key, value)

    def _query(self, x: Tensor, rotation: Rotation | None = None) -> Tensor:
        query = self._split(self.q_proj(x))
        if self.query_norm is not None:
            query = self.query_norm(query)
        return query if rotation is None else rotation(query)

    def forward(
        self,
        x: Tensor,
        memory: KeyValue,
        mask: Tensor | None = None,
        rotation: Rotation | None = None,
        *,
        causal: bool = False,
    ) -> Tensor:
        """Attends from x (B, T, C) to `memory`.

        `mask` (broadcast to B, H, T, S) is boolean, true at visible keys, or has x's type and is added to scores.
        `rotation` rotates the queries by their positions.
        """
        query = self._query(x, rotation)
        with _backend(query, causal=causal):
            y = functional.scaled_dot_product_attention(
                query,
                memory.key,
                memory.value,
                attn_mask=mask,
                dropout_p=self.dropout if self.training else 0.0,
                is_causal=causal,
                enable_gqa=self.queries_per_key > 1,
            )  # (B, H, T, D)
        return self.output(y.transpose(1, 2).flatten(2))

    def output(self, y: Tensor) -> Tensor:
        """The branch's output from the concatenated heads. Shape: (B, T, C) -> (B, T, C)."""
        if self.head_scale is not None:
            y = self.scale_heads(y)
        f = self.out_proj(y if self.heads_norm is None else self.heads_norm(y))
        return f if self.output_norm is None else self.output_norm(f)

    def scale_heads(self, y: Tensor) -> Tensor:
        """Multiplies each head's output by its learned factor. Shape: (..., C) -> (..., C)."""
        assert self.head_scale is not None
        return (y.unflatten(-1, (self.heads, -1)) * self.head_scale[:, None]).flatten(-2)

    def weights(
        self, x: Tensor, memory: KeyValue, mask: Tensor | None = None, rotation: Rotation | None = None
    ) -> Tensor:
        """Attention weights, averaged over heads; the softmax is in float32. Shape: (B, T, S)."""
        query = self._query(x, rotation).float()
        key = memory.key.float().repeat_interleave(self.queries_per_key, dim=1)
        scores = query @ key.transpose(2, 3) / math.sqrt(query.size(-1))  # (B, H, T, S)
        if mask is not None:
            scores = scores.masked_fill(~mask, float("-inf")) if mask.dtype == torch.bool else scores + mask
        return scores.softmax(-1).mean(1)


@contextmanager
def record_weights(attention: MultiHeadAttention) -> Iterator[list[Tensor]]:
    """A context in which every call of `attention` appends its weights (B, T, S) to the list that it yields."""
    recorded: list[Tensor] = []

    def record(module: nn.Module, inputs: tuple) -> None:
        recorded.append(attention.weights(*inputs[:4]))

    handle = attention.register_forward_pre_hook(record)
    try:
        yield recorded
    finally:
        handle.remove()
