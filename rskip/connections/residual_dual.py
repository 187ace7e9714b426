"""ResiDual: a post-norm stream, and a second stream that sums all sublayer outputs."""

from __future__ import annotations

from torch import Tensor

from rskip.connections.connection import Connection, StackConnection, State, opened, tensors
from rskip.connections.norms import at_least_float32, build_norm
from rskip.connections.registry import register_connection
from rskip.settings.paper import Paper


class ResidualDualStack(StackConnection):
    """Starts with r = x; the stack's output is x + norm(r). Members: `norm`."""

    def __init__(self, features: int, *, norm: str) -> None:
        super().__init__()
        self.norm = build_norm(norm, features)

    def enter(self, x: Tensor) -> State:
        return opened(x, at_least_float32(x))

    def leave(self, state: State) -> Tensor:
        x, r = tensors(state, self, 2)
        return x + self.norm(r).to(x.dtype)


@register_connection(
    "residual_dual",
    formula="x ← norm(x + f), r ← r + f; the stack's output is x + norm(r)",
    source="Xie et al. 2023, section 3",
    norms=("ln", "rms"),
    default_norm="ln",
    stack=ResidualDualStack,
    paper=Paper(
        title="ResiDual: Transformer with Dual Residual Connections",
        authors="Shufang Xie et al.",
        url="https://arxiv.org/abs/2304.14802",
        part="section 3",
    ),
)
class ResidualDual(Connection):
    """x ← norm(x + f), r ← r + f, where f = F(x). r is unbounded, so it is in float32 or better. Members: `norm`."""

    def __init__(self, features: int, *, norm: str, feature_dim: int = -1) -> None:
        super().__init__(features, feature_dim=feature_dim)
        self.norm = build_norm(norm, features, feature_dim)

    def before(self, state: State) -> tuple[Tensor, State]:
        x, r = tensors(state, self, 2)
        return x, (x, r)

    def after(self, kept: State, f: Tensor) -> State:
        x, r = kept
        return self.norm(x + f).to(x.dtype), r + f
