"""Branches that start small: ReZero has one learned factor per block, LayerScale one per feature."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rskip.connections.connection import Connection
from rskip.connections.norms import build_norm
from rskip.connections.place import Place
from rskip.connections.registry import Fold, register_connection
from rskip.connections.spec import ConnectionSpec
from rskip.kernel_forms import NormalisedSum
from rskip.settings.paper import Paper


@register_connection(
    "rezero",
    formula="x + αf, α learned",
    source="Bachlechner et al. 2020; with init the same as SkipInit, De and Smith 2020",
    paper=Paper(
        title="ReZero is All You Need: Fast Convergence at Large Depth",
        authors="Thomas Bachlechner, Bodhisattwa Prasad Majumder, Huanru Henry Mao, Garrison W. Cottrell, et al.",
        url="https://arxiv.org/abs/2003.04887",
    ),
)
class ReZero(Connection):
    """y = x + αf, without normalisation. α is one learned number and starts at `init`. Members: `alpha` (1)."""

    def __init__(self, features: int, *, init: float = 0, feature_dim: int = -1) -> None:
        super().__init__(features, feature_dim=feature_dim)
        self.init = init
        self.alpha = nn.Parameter(torch.tensor([float(init)]))

    def _initialise(self) -> None:
        nn.init.constant_(self.alpha, self.init)

    def combine(self, x: Tensor, f: Tensor) -> Tensor:
        return torch.addcmul(x, self.alpha, f)

    def as_norms(self) -> NormalisedSum:
        return NormalisedSum(branch_scale=self.alpha)


def _fold_layer_scale(spec: ConnectionSpec) -> Fold | None:
    def factor(connection: Connection) -> Tensor:
        assert isinstance(connection, LayerScale)
        return connection.branch_weight

    return None if spec.norm is None else Fold(f"prenorm+{spec.norm}", factor)


@register_connection(
    "layerscale",
    formula="x + γ ⊙ f, γ learned; with a norm x + γ ⊙ F(norm(x)), and one closes the stack",
    source="Touvron et al. 2021, Eq. 4 and section 2",
    norms=(None, "ln", "rms"),
    closing_norm=lambda spec: spec.norm is not None,
    fold=_fold_layer_scale,
    paper=Paper(
        title="Going Deeper with Image Transformers",
        authors="Hugo Touvron, Matthieu Cord, Alexandre Sablayrolles, Gabriel Synnaeve, Hervé Jégou",
        url="https://arxiv.org/abs/2103.17239",
        part="Eq. 4",
    ),
)
class LayerScale(Connection):
    """y = x + γ ⊙ f, with one γ per feature. With a normalisation (sequences only) f = F(norm(x)).

    γ starts at `init`. If that is 0, γ starts at 0.1 in stacks of up to 18 layers, 1e-5 up to 24, and 1e-6 above.
    Members: `branch_weight` (C), `norm` (if given).
    """

    def __init__(
        self, features: int, *, norm: str | None, init: float = 0, place: Place, feature_dim: int = -1
    ) -> None:
        super().__init__(features, feature_dim=feature_dim)
        by_depth = 0.1 if place.layers <= 18 else 1e-5 if place.layers <= 24 else 1e-6
        self.init = init or by_depth
        self.branch_weight = nn.Parameter(torch.full((features,), float(self.init)))
        self.norm = None if norm is None else build_norm(norm, features, feature_dim)

    def _initialise(self) -> None:
        nn.init.constant_(self.branch_weight, self.init)

    def branch_input(self, x: Tensor) -> Tensor:
        return x if self.norm is None else self.norm(x)

    def combine(self, x: Tensor, f: Tensor) -> Tensor:
        return torch.addcmul(x, self.of_features(self.branch_weight, x), f)

    def as_norms(self) -> NormalisedSum:
        return NormalisedSum(branch_scale=self.branch_weight, branch_norm=self.norm)
