"""B2T: post-norm blocks; each layer adds its own input once more before its last normalisation."""

from __future__ import annotations

from torch import Tensor

from rskip.connections.connection import Connection, State, tensors
from rskip.connections.norms import build_norm
from rskip.formulas.parameters import TextNorm
from rskip.formulas.place import Place
from rskip.formulas.registry import register_connection


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
