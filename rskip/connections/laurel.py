"""LAuReL: a residual connection with learned weights, or with a learned low-rank map of x in addition to x."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

import torch
from torch import Tensor, nn

from rskip.connections.connection import Connection
from rskip.connections.linear import LinearMap
from rskip.connections.norms import build_norm
from rskip.connections.options import Bounds
from rskip.connections.registry import register_connection
from rskip.kernel_forms import NormalisedSum
from rskip.settings.paper import Paper


@register_connection(
    "laurel",
    formula="x + BAx + f, or αf + βx with form=rw; with a norm f = F(norm(x)), and one closes the stack",
    source="Menghani et al. 2025, LAuReL-LR and LAuReL-RW; initial values: ours",
    norms=(None, "ln", "rms"),
    closing_norm=lambda spec: spec.norm is not None,
    only_with={"rank": ("form", "lr"), "bound": ("form", "rw")},
    paper=Paper(
        title="LAuReL: Learned Augmented Residual Layer",
        authors="Gaurav Menghani, Ravi Kumar, Sanjiv Kumar",
        url="https://arxiv.org/abs/2411.07501",
    ),
)
class Laurel(Connection):
    """y = x + BAx + f with form="lr", or y = αf + βx with form="rw".

    A has `rank` rows; α and β are one number each per block. With a normalisation (sequences only) f = F(norm(x)).
    α and β are learned as they are, or, with `bound`, as the softmax of two learned numbers or as the sigmoid of each.
    A block starts as x + f: B = 0, or α = β = 1. With `bound` it starts as (x + f)/2.
    Members: `down` (A) and `up` (B), or `branch_scale` (α) and `skip_scale` (β), each (1), before softmax or sigmoid;
    `norm` (if given).
    """

    def __init__(
        self,
        features: int,
        *,
        norm: str | None,
        form: Literal["lr", "rw"] = "lr",
        rank: Annotated[int, Bounds(1, 4096)] = 16,
        bound: Literal["none", "softmax", "sigmoid"] = "none",
        feature_dim: int = -1,
    ) -> None:
        super().__init__(features, feature_dim=feature_dim)
        self.form, self.bound = form, bound
        if form == "lr":
            self.down = LinearMap(features, rank, first_weight=None, first_bias=None)
            self.up = LinearMap(rank, features, first_weight=nn.init.zeros_, first_bias=None)
            self.up.reset_parameters()
        else:
            self.branch_scale = nn.Parameter(torch.empty(1))
            self.skip_scale = nn.Parameter(torch.empty(1))
            self._start_weights()
        self.norm = None if norm is None else build_norm(norm, features, feature_dim)

    def reset_parameters(self, weight_init: Callable[[Tensor], object] | None = None) -> None:
        """Sets all initial values. `weight_init` fills A; None: A starts as in `nn.Linear`."""
        super().reset_parameters()
        if self.form == "lr":
            self.down.reset_parameters(weight_init)
            self.up.reset_parameters()
        else:
            self._start_weights()

    def _start_weights(self) -> None:
        for each in (self.branch_scale, self.skip_scale):
            nn.init.constant_(each, 1.0 if self.bound == "none" else 0.0)

    @property
    def weights(self) -> tuple[Tensor, Tensor]:
        """α and β of form="rw", each (1)."""
        alpha, beta = self.branch_scale, self.skip_scale
        if self.bound == "sigmoid":
            return torch.sigmoid(alpha), torch.sigmoid(beta)
        if self.bound == "softmax":
            share = torch.sigmoid(alpha - beta)
            return share, 1 - share
        return alpha, beta

    def branch_input(self, x: Tensor) -> Tensor:
        return x if self.norm is None else self.norm(x)

    def combine(self, x: Tensor, f: Tensor) -> Tensor:
        if self.form == "rw":
            alpha, beta = self.weights
            return alpha * f + beta * x
        mapped = self.up(self.down(x.movedim(self.feature_dim, -1))).movedim(-1, self.feature_dim)
        return x + mapped + f

    def as_norms(self) -> NormalisedSum:
        if self.form == "rw":
            alpha, beta = self.weights
            return NormalisedSum(scale=beta, branch_scale=alpha, branch_norm=self.norm)
        return NormalisedSum(added=(self.down, self.up), branch_norm=self.norm)
