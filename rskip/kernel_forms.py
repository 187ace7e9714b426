"""The forms of a connection's formula that the compiled kernels compute. This module needs no PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal


class NoKernelForm(ValueError):
    """The kernels can't compute a model, so PyTorch must."""


@dataclass(frozen=True, kw_only=True)
class NormalisedSum:
    """y_k = norm_k(scale·x + y_{k-1}) for k = 1..n, y_0 = branch_scale·f, y = y_n; without norms y = scale·x + y_0.

    The branch's input is branch_norm(x), or x if that is None. The normalisations are either all `LayerNorm` or all
    `RMSNorm`, and norm_1 to norm_n share one eps.
    """

    norms: Sequence[Any] = ()
    scale: float = 1.0
    branch_scale: float = 1.0
    branch_norm: Any = None


@dataclass(frozen=True, kw_only=True)
class GatedSum:
    """y = αx + βf + γ norm(x + f), where α, β and γ are `Gate`s, and the term with γ is 0 without a norm.

    :param form: "scaling": α, β, γ; without a gate γ = (1-α)(1-β). "highway": α = 1-T and β = T with T = `alpha`.
        "shortcut": α = 1-T and β = 1.
    :param over: the gates' input, x or [x; f].
    :param branch_norm: the branch's input is branch_norm(x), or x if that is None.
    """

    form: Literal["scaling", "highway", "shortcut"]
    over: Literal["x", "both"]
    alpha: Any
    beta: Any = None
    gamma: Any = None
    norm: Any = None
    branch_norm: Any = None
