"""ReZero: y = x + αf, with one learned α per block, which starts at 0 (Bachlechner et al. 2020)."""

import torch

from rskip.connections import Connection, register_connection


@register_connection(
    "rezero",
    formula="x + αf, α learned",
    source="Bachlechner et al. 2020, ReZero is all you need",
)
class ReZero(Connection):
    """`rezero` starts α at 0; `rezero:init=0.5` at 0.5."""

    def __init__(self, features: int, *, init: float = 0, feature_dim: int = -1) -> None:
        super().__init__(features, feature_dim=feature_dim)
        self.init = init
        self.alpha = torch.nn.Parameter(torch.tensor([float(init)]))

    def reset_parameters(self, weight_init=None) -> None:
        torch.nn.init.constant_(self.alpha, self.init)

    def combine(self, x: torch.Tensor, f: torch.Tensor) -> torch.Tensor:
        return x + self.alpha * f
