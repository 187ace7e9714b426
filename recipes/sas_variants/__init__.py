"""A user-dir with variants of SAS that multi30k_sas.yaml sets beside it to see why it diverges (docs/gradients.md)."""

from typing import Literal

import rskip.fairseq_plugin  # rskip's architectures
from rskip.connections import SAS, F, Norm, Sum, X, register_connection

__all__ = ["BranchNormSAS", "ClosedSAS", "rskip"]


@register_connection("sas_closed", source="ours")
class ClosedSAS(SAS):
    """Eq. 4 of SAS; what leaves the stack is normalised."""

    closing_norm = True

    def __init__(self, *, norm: Literal["ln"] = "ln") -> None:
        super().__init__(norm=norm)


@register_connection("sas_branch_norm", source="ours")
class BranchNormSAS(SAS):
    """Eq. 4 of SAS with β norm(f) in place of βf: whether the size of f is what diverges. Members: `f_norm` too."""

    closing_norm = False

    def __init__(self, *, norm: Literal["ln"] = "ln") -> None:
        super().__init__(norm=norm)
        (alpha, _), (beta, _), normalised = self.y.parts
        self.y = Sum(((alpha, X), (beta, Norm("f_norm", norm, F)), normalised))
