"""SiameseNorm: a post-norm and a pre-norm stream that share every branch."""

from __future__ import annotations

import math

from torch import Tensor

from rskip.connections.connection import Connection, StackConnection, State, opened, tensors
from rskip.connections.norms import build_norm
from rskip.connections.place import Place
from rskip.connections.registry import register_connection
from rskip.settings.paper import Paper


class SiameseStack(StackConnection):
    """Starts with X = Y = x; the stack's output is norm(norm(X) + norm(Y)).

    Members: `post_norm` (for X), `pre_norm` (for Y), `norm`.
    """

    def __init__(self, features: int, *, norm: str) -> None:
        super().__init__()
        self.post_norm = build_norm(norm, features)
        self.pre_norm = build_norm(norm, features)
        self.norm = build_norm(norm, features)

    def enter(self, x: Tensor) -> State:
        return opened(x, x)

    def leave(self, state: State) -> Tensor:
        post, pre = tensors(state, self, 2)
        return self.norm(self.post_norm(post) + self.pre_norm(pre))


@register_connection(
    "siamese",
    formula="X ← norm(X), f = F(norm(X + norm(Y))), X ← X + f/√s, Y ← Y + f, s the blocks up to this layer's end",
    source="Li et al. 2026, its code for DeiT",
    norms=("ln", "rms"),
    default_norm="ln",
    stack=SiameseStack,
    paper=Paper(
        title="SiameseNorm: Breaking the Barrier to Reconciling Pre/Post-Norm",
        authors="Tianyu Li et al.",
        url="https://arxiv.org/abs/2602.08064",
    ),
)
class Siamese(Connection):
    """X ← norm₁(X), f = F(norm₃(X + norm₂(Y))), X ← X + f/√s, Y ← Y + f.

    s is the number of blocks up to the end of this layer: 2l in layer l of an encoder, as in the paper's code, and by
    the same rule 3l in a decoder. Members: `post_norm` (norm₁), `pre_norm` (norm₂), `norm` (norm₃).
    """

    def __init__(self, features: int, *, norm: str, place: Place, feature_dim: int = -1) -> None:
        super().__init__(features, feature_dim=feature_dim)
        self.scale = 1 / math.sqrt(place.layer * place.sublayers / place.layers)
        self.post_norm = build_norm(norm, features, feature_dim)
        self.pre_norm = build_norm(norm, features, feature_dim)
        self.norm = build_norm(norm, features, feature_dim)

    def before(self, state: State) -> tuple[Tensor, State]:
        post, pre = tensors(state, self, 2)
        post = self.post_norm(post)
        return self.norm(post + self.pre_norm(pre)), (post, pre)

    def after(self, kept: State, f: Tensor) -> State:
        post, pre = kept
        return post + self.scale * f, pre + f
