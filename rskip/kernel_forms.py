"""The forms of a connection's formula that the compiled kernels compute. This module needs no PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from rskip.settings.errors import SettingError

PRECISIONS = ("float32", "bfloat16", "int8")  # number formats of inference


class NoKernelForm(ValueError):
    """The kernels can't compute a model, so PyTorch must.

    :param without_torch: the error where PyTorch is missing; None: the advice to install it.
    """

    def __init__(self, reason: str, *, without_torch: SettingError | None = None) -> None:
        super().__init__(reason)
        self.without_torch = without_torch


@dataclass(frozen=True, kw_only=True)
class NormalisedSum:
    """y_k = norm_k(scale·x + y_{k-1}) for k = 1..n, y_0 = branch_scale·f, y = y_n; without norms y = scale·x + y_0.

    `scale` and `branch_scale` are numbers, or tensors with one value or one per feature. The branch's input is
    input_scale·branch_norm(x), or x if branch_norm is None. Each normalisation is a `LayerNorm` or an `RMSNorm`, and
    norm_1 to norm_n are of one kind and share one eps. Rarer parts:

    - output_norm: f is output_norm(F(x)).
    - shares (n): y = Σ_k shares_k·y_k.
    - added: two linear maps A and B; x is replaced by x + BAx.
    """

    norms: Sequence[Any] = ()
    scale: Any = 1.0
    branch_scale: Any = 1.0
    branch_norm: Any = None
    input_scale: float = 1.0
    output_norm: Any = None
    shares: Any = None
    added: tuple[Any, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class GatedSum:
    """y = αx + βf + γ norm(x + f), where α, β and γ are gates (`Gate`), and the term with γ is 0 without a norm.

    :param form: "scaling": α, β, γ; without a gate γ = (1-α)(1-β). "highway": α = 1-T and β = T with T = `alpha`.
        "shortcut": α = 1-T and β = 1. "orthogonal": α = 1 - x·f/(x·x + 1e-6) and β = 1. "delta": α = 1 and
        β = 2σ(a)(4σ(b) - x·f/‖f‖)/‖f‖ with linear maps `alpha` of branch_norm(x) and `beta` of x, of one value each.
    :param over: the gates' input, x or [x; f].
    :param branch_norm: the branch's input is branch_norm(x), or x if that is None.
    """

    form: Literal["scaling", "highway", "shortcut", "orthogonal", "delta"]
    over: Literal["x", "both"] = "x"
    alpha: Any = None
    beta: Any = None
    gamma: Any = None
    norm: Any = None
    branch_norm: Any = None
