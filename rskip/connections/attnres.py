"""Attention residuals: each branch's input is an attention over the embedding and sums of earlier sublayer outputs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from rskip.connections.connection import Connection, Mixing, Resettable, StackConnection, State, opened, tensors
from rskip.connections.depth_kernels import attend
from rskip.connections.hyper import weighted_sums
from rskip.connections.norms import Normalisation, RMSNorm, at_least_float32, build_norm, without_autocast
from rskip.connections.stream_kernels import UNFUSED, Kernels, described, fused, hooked, kernels_for, readable, widened
from rskip.formulas.parameters import Bounds, TextNorm
from rskip.formulas.place import Place
from rskip.formulas.registry import register_connection

Values = Literal["raw", "rms"]


class DepthAttention(Resettable):
    """h = Σ_i softmax_i(w·RMS(v_i)) v_i over tensors v_i of one shape (..., C), separately at each position.

    w starts at 0, so h starts as the mean. The softmax is in float32 or better. Members: `query` (w, C), `norm`.

    :param queries: number of queries w, each of which gives an h; if there are several, `query` is (queries, C).
    :param values: rms: v_i / RMS(v_i), without the gain, in place of the last v_i.
    """

    def __init__(self, features: int, *, queries: int = 1, values: Values = "raw") -> None:
        super().__init__()
        self.query = self.learned("query", 0.0, *([] if queries == 1 else [queries]), features)
        self.norm = RMSNorm(features)
        self.values = values

    def _read(self, stacked: Tensor) -> tuple[Tensor, Tensor]:
        """The attention (..., number of values), with several queries (..., queries, number of values), and 1/RMS."""
        gain = at_least_float32(self.norm.weight) * at_least_float32(self.query)  # so RMS(v) is not kept for backward
        root = torch.rsqrt(stacked.square().mean(-1) + self.norm.eps)
        with without_autocast(stacked.device):
            if gain.dim() == 1:
                return (root * (stacked @ gain)).softmax(-1), root
            return (root.unsqueeze(-2) * (gain @ stacked.mT)).softmax(-1), root

    def weights(self, stacked: Tensor) -> Tensor:
        """The weight of each value in h: (..., number of values, C) -> (..., number of values)."""
        found, root = self._read(stacked)
        found = found[..., 0, :] if self.query.dim() == 2 else found
        return found if self.values == "raw" else found * root

    def extra_repr(self) -> str:
        return f"computed by {described(self._library(self.query.new_empty(1, self.query.size(-1))))}"

    def _library(self, *values: Tensor) -> Kernels | None:
        """The kernels, if they take the values and compute this attention."""
        query = self.query
        if query.shape != values[0].shape[-1:] or self.values == "rms" or hooked(self):
            return None
        return kernels_for(*values) if fused(self.norm)[0] and readable(query) else None

    def attend(
        self, values: tuple[Tensor, ...], closing: Normalisation | None = None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """h, or its normalised values, and the values for later readings."""
        values = tuple(map(widened, values))
        library = self._library(*values)
        if library:
            norm = UNFUSED if closing is None else fused(closing)
            h, values = attend(library, norm, self.query, fused(self.norm), values)
            return h if closing is None or norm[0] else closing(h), values
        h = self(values)
        return h if closing is None else closing(h), values

    def forward(self, values: tuple[Tensor, ...]) -> Tensor:
        """h, with several queries (..., queries, C)."""
        stacked = at_least_float32(torch.stack(values, dim=-2))
        found, root = self._read(stacked)
        if self.query.dim() == 2:
            of_values = root.unsqueeze(-2) if self.values == "rms" else 1
            return weighted_sums((found * of_values).mT, stacked).to(values[0].dtype)
        of_values = root if self.values == "rms" else 1
        return ((found * of_values).unsqueeze(-1) * stacked).sum(-2).to(values[0].dtype)


class AttnResStack(StackConnection):
    """The state holds the embedding and the sums so far. The stack's output is an attention over all of them.

    Members: `attention`.
    """

    def __init__(self, features: int, *, values: Values = "raw", **settings: Any) -> None:
        super().__init__()
        self.attention = DepthAttention(features, values=values)

    def enter(self, x: Tensor) -> State:
        return opened(x)

    def leave(self, state: State) -> Tensor:
        return self.attention.attend(tensors(state, self))[0]


@register_connection(
    "attnres",
    source="Kimi Team 2026, Eq. 2 to 6, the block form; as many blocks as branches is the full form; layers=12: Kimi "
    "K3; layers=6, values=rms, queries=3: Inkling 2, as in transformers 5.24",
)
class AttnRes(Connection):
    """f = F(norm(h)) with h = Σ_i softmax_i(w·RMS(b_i)) b_i, where b_0 is the stack's input and b_1 to b_N are sums of
    sublayer outputs, the last one so far; the stack gives one more h.

    f is added to the last b_i, or starts the next one. Branch l of L belongs to sum ⌈lN/L⌉, so the sizes of the sums
    differ by at most one. w starts at 0. The first branch receives norm(b_0).

    :param blocks: N.
    :param layers: number of layers in each sum; 0: as `blocks` says.
    :param values: rms: attention sums b_i / RMS(b_i) in place of b_i.
    :param queries: 3: self-attention reads its queries, keys and values from three h, each with a w and a norm.

    Members: `norm`, and `attention` in every block except the first. With queries=3 self-attention also has `key_norm`
    and `value_norm`.
    """

    closing_norm = True
    stack = AttnResStack
    reads_earlier_layers = True
    only_with = {"blocks": ("layers", 0)}

    def __init__(
        self,
        features: int,
        *,
        norm: TextNorm = "ln",
        blocks: Annotated[int, Bounds(1, 10**6)] = 8,
        layers: Annotated[int, Bounds(0, 1000)] = 0,
        values: Values = "raw",
        queries: Literal["1", "3"] = "1",
        place: Place,
        feature_dim: int = -1,
    ) -> None:
        super().__init__(features, feature_dim=feature_dim)
        sums = _block(place.sublayer - 1, place, blocks, layers)  # number of sums that earlier branches contribute to
        self.begins = _block(place.sublayer, place, blocks, layers) != sums
        self.values = 1 + sums  # number of tensors in its state
        self.splits_inputs = queries == "3" and place.branch == "self_attn"
        count = 3 if self.splits_inputs else 1
        self.norm = build_norm(norm, features, feature_dim)
        self.attention = DepthAttention(features, queries=count, values=values) if place.sublayer > 1 else None
        if self.splits_inputs:
            self.key_norm = build_norm(norm, features, feature_dim)
            self.value_norm = build_norm(norm, features, feature_dim)

    @property
    def no_weight_decay(self) -> frozenset[str]:
        return super().no_weight_decay | ({"attention.query"} if self.attention is not None else set())

    def before(self, state: State) -> tuple[Tensor, State]:
        values = tensors(state, self, self.values)
        if not self.splits_inputs:
            if self.attention is None:
                return self.norm(values[0]), values
            return self.attention.attend(values, self.norm)
        queries, keys, of_values = [values[0]] * 3 if self.attention is None else self.attention(values).unbind(-2)
        return self.norm(queries), (*values, self.key_norm(keys), self.value_norm(of_values))

    def key_value_inputs(self, kept: State) -> tuple[Tensor, Tensor] | None:
        return (kept[-2], kept[-1]) if self.splits_inputs else None

    def after(self, kept: State, f: Tensor) -> State:
        kept = kept[: self.values]
        if self.begins:  # as wide as x, as sums are: under autocast f may be narrower, and kernels take one type
            return *kept, f.to(torch.promote_types(f.dtype, kept[0].dtype))
        return *kept[:-1], kept[-1] + f

    def as_mixing(self, state: State, f: Tensor) -> Mixing:
        values = at_least_float32(self.parts(tensors(state, self, self.values)))
        reads = values.new_ones(1) if self.attention is None else self.attention.weights(values)
        kept = torch.eye(self.values + self.begins)
        return Mixing(reads=reads, carries=kept[:, : self.values], adds=kept[-1])


def _block(sublayer: int, place: Place, blocks: int, layers: int) -> int:
    """The number of the sum, from 1, that a branch's output is added to; 0 before the first branch."""
    if layers:
        return -(-sublayer * place.layers // (place.sublayers * layers))
    return -(-sublayer * min(blocks, place.sublayers) // place.sublayers)
