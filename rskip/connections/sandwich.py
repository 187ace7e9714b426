"""Normalisations on both sides of the branch: Sandwich-LN and Peri-LN."""

from __future__ import annotations

from torch import Tensor

from rskip.connections.connection import Connection, HostNeed, StackConnection
from rskip.connections.norms import build_norm
from rskip.connections.registry import register_connection
from rskip.kernel_forms import NormalisedSum
from rskip.settings.paper import Paper


@register_connection(
    "sandwich",
    formula="x + norm₂(F(norm₁(x))), and one normalisation closes the stack",
    source="Ding et al. 2021, section 2.4",
    norms=("ln", "rms"),
    default_norm="ln",
    closing_norm=True,
    paper=Paper(
        title="CogView: Mastering Text-to-Image Generation via Transformers",
        authors="Ming Ding et al.",
        url="https://arxiv.org/abs/2105.13290",
        part="section 2.4",
    ),
)
class Sandwich(Connection):
    """y = x + norm₂(f), where f = F(norm₁(x)). Members: `norm` (norm₁), `branch_norm` (norm₂)."""

    def __init__(self, features: int, *, norm: str, feature_dim: int = -1) -> None:
        super().__init__(features, feature_dim=feature_dim)
        self.norm = build_norm(norm, features, feature_dim)
        self.branch_norm = build_norm(norm, features, feature_dim)

    def branch_input(self, x: Tensor) -> Tensor:
        return self.norm(x)

    def combine(self, x: Tensor, f: Tensor) -> Tensor:
        return x + self.branch_norm(f)

    def as_norms(self) -> NormalisedSum:
        return NormalisedSum(branch_norm=self.norm, output_norm=self.branch_norm)


class PeriLNStack(StackConnection):
    """Normalises the stack's input. Members: `norm`."""

    def __init__(self, features: int, *, norm: str) -> None:
        super().__init__()
        self.norm = build_norm(norm, features)

    def enter(self, x: Tensor) -> Tensor:
        return self.norm(x)


@register_connection(
    "periln",
    formula="x + norm₂(F(norm₁(x))), and one normalisation opens the stack, one closes it",
    source="Kim et al. 2025, section 3",
    norms=("ln", "rms"),
    default_norm="ln",
    closing_norm=True,
    stack=PeriLNStack,
    paper=Paper(
        title="Peri-LN: Revisiting Normalization Layer in the Transformer Architecture",
        authors="Jeonghoon Kim et al.",
        url="https://arxiv.org/abs/2502.02732",
        part="section 3",
    ),
)
class PeriLN(Sandwich):
    """y = x + norm₂(f), where f = F(norm₁(x)), in a stack whose input is normalised too. Members: as in Sandwich."""

    @property
    def host_needs(self) -> tuple[HostNeed, ...]:
        return ("stack",)
