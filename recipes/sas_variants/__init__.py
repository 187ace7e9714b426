"""A user-dir with variants of SAS that multi30k_sas.yaml sets beside it to find out why it diverges (docs/sas.md)."""

import torch

import rskip.fairseq_plugin  # rskip's architectures
from rskip.connections import SAS, build_norm, register_connection

__all__ = ["BranchNormSAS", "ClosedSAS", "rskip"]

_SAS = {"norms": ("ln",), "default_norm": "ln", "source": "ours"}
_CLOSED = "sas, and one normalisation closes the stack"
_BRANCH_NORM = "αx + β norm(f) + (1-α)(1-β) norm(x + f)"


@register_connection("sas_closed", formula=_CLOSED, closing_norm=True, **_SAS)
class ClosedSAS(SAS):
    """Eq. 4 of SAS; what leaves the stack is normalised."""


@register_connection("sas_branch_norm", formula=_BRANCH_NORM, **_SAS)
class BranchNormSAS(SAS):
    """Eq. 4 of SAS with β norm(f) in place of βf: whether the size of f is what diverges. Members: `f_norm` too."""

    def __init__(self, features: int, *, norm: str, feature_dim: int = -1, **options: object) -> None:
        super().__init__(features, norm=norm, feature_dim=feature_dim, **options)
        self.f_norm = build_norm(norm, features, feature_dim)

    def combine(self, x: torch.Tensor, f: torch.Tensor) -> torch.Tensor:
        alpha, beta, gamma = self.factors(x, f)
        return alpha * x + beta * self.f_norm(f) + gamma * self.norm(x + f)
