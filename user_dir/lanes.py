"""Two lanes: a branch reads their sum and writes to one, and they are swapped (after Gomez et al. 2017, RevNet)."""

from typing import Literal

import rskip.connections as connections


class Lanes(connections.StackConnection):
    def __init__(self, features, norm):
        super().__init__()

    def enter(self, x):
        return x, x

    def leave(self, state):
        return state[0] + state[1]


@connections.register_connection("lanes", source="an example")
class TwoLanes(connections.Connection):
    """a, b ← b, a + F(norm(a + b))."""

    closing_norm = True
    stack = Lanes

    def __init__(self, features, *, norm: Literal["ln"] = "ln", feature_dim=-1):
        super().__init__(features, feature_dim=feature_dim)
        self.norm = connections.build_norm(norm, features)

    def before(self, state):
        return self.norm(state[0] + state[1]), state

    def after(self, kept, f):
        return kept[1], kept[0] + f
