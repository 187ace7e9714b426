"""x0 scalars: before each layer, the stack's input is added to x with a learned weight."""

from __future__ import annotations

import torch
from torch import Tensor

from rskip.connections.connection import Connection, State, tensors
from rskip.connections.denseformer import DenseFormerStack
from rskip.connections.mixing import Mixing
from rskip.connections.norms import build_norm
from rskip.formulas.parameters import Positive, TextNorm
from rskip.formulas.place import Place
from rskip.formulas.registry import register_connection

# Initial values in nanochat, from the first layer to the last.
_LAMBDA = (1.15, 1.05)
_MU = (0.20, 0.05)


@register_connection(
    "x0",
    source="nanochat's resid_lambdas and x0_lambdas (karpathy/nanochat, 2026), first in modded-nanogpt; rate is ours",
)
class X0(Connection):
    """y = x + F(norm(x)), before each layer x ← λx + μx_0 with the stack's input x_0, λ and μ learned.

    λ starts at 1.15 in the first layer and falls to 1.05 in the last, μ at 0.20 and 0.05, both linearly. Let p be
    `skip_weight`, p₀ its initial value and c `rate`. Then λ = p₀ + c(p - p₀), so λ = p with c = 1.
    The state is x and x_0.

    :param rate: c. Adam moves λ at c times the learning rate, and SGD at c² times.

    Members: `norm`, and in a layer's first block `skip_weight` (p) and `input_weight` (μ), each (1).
    """

    closing_norm = True
    stack = DenseFormerStack

    def __init__(
        self, features: int, *, norm: TextNorm = "ln", rate: Positive = 1, place: Place, feature_dim: int = -1
    ) -> None:
        super().__init__(features, feature_dim=feature_dim)
        self.rate = rate
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
        x, first = tensors(state, self, 2)
        weights = self._weights()
        if weights is not None:
            x = torch.addcmul(weights[0] * x, weights[1], first).to(x.dtype)
        return self.norm(x), (x, first)

    def after(self, kept: State, f: Tensor) -> State:
        x, first = kept
        return (x + f).to(x.dtype), first

    def as_mixing(self, state: State, f: Tensor) -> Mixing:
        reads, weights = torch.tensor([1.0, 0.0]), self._weights()
        if weights is not None:
            reads = torch.cat(weights)
        carries = torch.stack([reads, reads.new_tensor([0.0, 1.0])])
        return Mixing(reads=reads, carries=carries, adds=reads.new_tensor([1.0, 0.0]))
