"""DenseFormer, MUDD, x0 scalars and B2T: layers that also read earlier layers' outputs, or an input again."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from rskip.connections.connection import Connection, Mixing, StackConnection, State, opened, tensors
from rskip.connections.linear import LinearMap
from rskip.connections.norms import EPS, build_norm, divided_by_rms
from rskip.formulas.parameters import Positive, TextNorm
from rskip.formulas.place import Place
from rskip.formulas.registry import register_connection


class DenseFormerStack(StackConnection):
    """The state holds x and the outputs so far, beginning with the embedding."""

    def enter(self, x: Tensor) -> State:
        return opened(x, x)

    def leave(self, state: State) -> Tensor:
        return tensors(state, self)[0]


@register_connection("denseformer", source="Pagliardini et al. 2024, section 3, without dilation and period")
class DenseFormer(Connection):
    """y = x + F(norm(x)), after layer l x ← Σ_j a_j·X_j of the embedding X_0 and the layers' outputs X_1 to X_l.

    X_l is layer l's output before that sum. a is learned and starts one-hot on X_l, so the stack starts as pre-norm.
    Members: `norm`, and in a layer's last block `weights` (l + 1).
    """

    closing_norm = True
    stack = DenseFormerStack
    reads_earlier_layers = True

    def __init__(self, features: int, *, norm: TextNorm = "ln", place: Place, feature_dim: int = -1) -> None:
        super().__init__(features, feature_dim=feature_dim)
        self.outputs = place.layer + 1  # number of tensors in its state
        self.norm = build_norm(norm, features, feature_dim)
        first = [0.0] * place.layer + [1.0]
        self.weights = self.learned("weights", first) if place.ends_layer else None

    def before(self, state: State) -> tuple[Tensor, State]:
        outputs = tensors(state, self, self.outputs)
        return self.norm(outputs[0]), outputs

    def after(self, kept: State, f: Tensor) -> State:
        x, *outputs = kept
        outputs.append(x + f)
        if self.weights is None:
            return outputs[-1], *outputs[:-1]
        weights = self._weights_at(outputs[-1])
        first, *others = weights.unbind() if weights.dim() == 1 else weights.unsqueeze(-2).unbind(-1)
        average = first * outputs[0]
        for weight, output in zip(others, outputs[1:], strict=True):
            average = torch.addcmul(average, weight, output)
        return average.to(outputs[0].dtype), *outputs

    def _weights_at(self, x: Tensor) -> Tensor:
        """The weights of X_0 to X_l in a layer's last block, where X_l is x: (l + 1) or (..., l + 1)."""
        assert self.weights is not None
        return self.weights

    def as_mixing(self, state: State, f: Tensor) -> Mixing:
        kept = torch.eye(self.outputs)
        if self.weights is None:
            return Mixing(reads=kept[0], carries=kept, adds=kept[0])
        weights = self._weights_at(tensors(state, self, self.outputs)[0] + f)
        kept = kept.to(weights.dtype)
        outputs = kept.roll(-1, 0).expand(*weights.shape[:-1], -1, -1)  # X_0 to X_{l-1}, then x
        carries = torch.cat([weights.roll(1, -1).unsqueeze(-2), outputs], dim=-2)
        added = kept[-1].expand(*weights.shape[:-1], -1)
        return Mixing(reads=kept[0], carries=carries, adds=torch.cat([weights[..., -1:], added], dim=-1))


@register_connection("mudd", source="Xiao et al. 2025, the residual stream's connection alone; initial W₁: ours")
class MUDD(DenseFormer):
    """denseformer's formula, with a_j + w_j in place of a_j, where w = W₂·gelu(W₁·RMS(X_l)) at each position.

    RMS has no gain. W₂ starts at 0 and a one-hot on X_l, so the stack starts as pre-norm.
    Members: `norm`, and in a layer's last block `weights` (a, l + 1), `down` (W₁, l + 1 rows), `up` (W₂).
    """

    def __init__(self, features: int, *, norm: TextNorm = "ln", place: Place, feature_dim: int = -1) -> None:
        super().__init__(features, norm=norm, place=place, feature_dim=feature_dim)
        self.eps = EPS
        if self.weights is not None:
            count = len(self.weights)
            self.down = LinearMap(features, count, first_weight=nn.init.xavier_uniform_, first_bias=None)
            self.up = LinearMap(count, count, first_weight=nn.init.zeros_, first_bias=None)
            self.down.reset_parameters()
            self.up.reset_parameters()

    def _weights_at(self, x: Tensor) -> Tensor:
        hidden = functional.gelu(self.down(divided_by_rms(x, self.eps).to(self.down.weight.dtype)))
        weights: Tensor = self.weights + self.up(hidden)
        return weights


# Initial values in nanochat, from the first layer to the last.
_LAMBDA = (1.15, 1.05)
_MU = (0.20, 0.05)
_BACKOUT = 0.2


class X0Stack(StackConnection):
    """The state starts as (x, x), with backout as (x, x, x). Members with backout: `backout_weight`."""

    def __init__(self, features: int, *, backout: bool, **settings: Any) -> None:
        super().__init__()
        self.backout_weight = self.learned("backout_weight", _BACKOUT, 1) if backout else None

    def enter(self, x: Tensor) -> State:
        return opened(x, x) if self.backout_weight is None else opened(x, x, x)

    def leave(self, state: State) -> Tensor:
        if self.backout_weight is None:
            return tensors(state, self, 2)[0]
        x, _, middle = tensors(state, self, 3)
        return torch.addcmul(x, -self.backout_weight, middle).to(x.dtype)


@register_connection(
    "x0",
    source="nanochat's resid_lambdas and x0_lambdas (karpathy/nanochat, 2026), first in modded-nanogpt; rate is ours",
)
class X0(Connection):
    """y = x + F(norm(x)), before each layer x ← λx + μx_0 with the stack's input x_0, λ and μ learned.

    λ starts at 1.15 in the first layer and falls to 1.05 in the last, μ at 0.20 and 0.05, both linearly. Let p be
    `skip_weight`, p₀ its initial value and c `rate`. Then λ = p₀ + c(p - p₀), so λ = p with c = 1.
    The state is x and x_0. With backout it is also x_m, which is x after layer ⌊L/2⌋ + 1 of L, and the stack gives
    x - κx_m with κ learned from 0.2.

    :param rate: c. Adam moves λ at c times the learning rate, and SGD at c² times.
    :param backout: whether the stack gives x - κx_m.

    Members: `norm`, and in a layer's first block `skip_weight` (p) and `input_weight` (μ), each (1).
    """

    closing_norm = True
    stack = X0Stack

    def __init__(
        self,
        features: int,
        *,
        norm: TextNorm = "ln",
        rate: Positive = 1,
        backout: bool = False,
        place: Place,
        feature_dim: int = -1,
    ) -> None:
        super().__init__(features, feature_dim=feature_dim)
        self.rate, self.count = rate, 3 if backout else 2
        self.is_middle = backout and place.layer == place.layers // 2 + 1 and place.ends_layer
        depth = (place.layer - 1) / max(place.layers - 1, 1)
        self.first_lambda, first_mu = (start + depth * (end - start) for start, end in (_LAMBDA, _MU))
        self.norm = build_norm(norm, features, feature_dim)
        begins = place.begins_layer
        self.skip_weight = self.learned("skip_weight", self.first_lambda, 1) if begins else None
        self.input_weight = self.learned("input_weight", first_mu, 1) if begins else None

    def _weights(self) -> tuple[Tensor, Tensor] | None:
        """λ and μ, each (1), in a layer's first block."""
        if self.skip_weight is None or self.input_weight is None:
            return None
        weight: Tensor = self.skip_weight
        if self.rate != 1:
            weight = self.first_lambda + self.rate * (weight - self.first_lambda)
        return weight, self.input_weight

    def before(self, state: State) -> tuple[Tensor, State]:
        x, first, *middle = tensors(state, self, self.count)
        weights = self._weights()
        if weights is not None:
            x = torch.addcmul(weights[0] * x, weights[1], first).to(x.dtype)
        return self.norm(x), (x, first, *middle)

    def after(self, kept: State, f: Tensor) -> State:
        x, first, *middle = kept
        y = (x + f).to(x.dtype)
        return (y, first, y) if self.is_middle else (y, first, *middle)

    def as_mixing(self, state: State, f: Tensor) -> Mixing:
        carries, adds, weights = torch.eye(self.count), torch.eye(self.count)[0], self._weights()
        if weights is not None:
            carries = torch.cat([functional.pad(torch.cat(weights), (0, self.count - 2))[None], carries[1:]])
        reads = carries[0]
        if self.is_middle:
            carries, adds = torch.stack([reads, carries[1], reads]), torch.tensor([1.0, 0.0, 1.0])
        return Mixing(reads=reads, carries=carries, adds=adds)


@register_connection("b2t", source="Takase et al. 2023, section 4")
class B2T(Connection):
    """y = norm(x + f), in a layer's last block y = norm(x + f + the layer's input).

    The state is (x, the layer's input) within a layer and x between layers. The paper's code can also multiply all
    initial weights by L^(-1/2) for L layers; this module does not. Members: `norm`.
    """

    def __init__(self, features: int, *, norm: TextNorm = "ln", place: Place, feature_dim: int = -1) -> None:
        super().__init__(features, feature_dim=feature_dim)
        self.ends_layer = place.ends_layer
        self.norm = build_norm(norm, features, feature_dim)

    def before(self, state: State) -> tuple[Tensor, State]:
        x, bottom = (state, state) if isinstance(state, Tensor) else tensors(state, self, 2)
        return x, (x, bottom)

    def after(self, kept: State, f: Tensor) -> State:
        x, bottom = kept
        if self.ends_layer:
            return self.norm(x + f + bottom).to(x.dtype)
        return self.norm(x + f).to(x.dtype), bottom
