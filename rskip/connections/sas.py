"""SAS (`rskip.formulas.gated`), in half precision on a GPU as one autograd function."""

from __future__ import annotations

import torch
from torch import Tensor

from rskip.connections.formula import FormulaConnection, computes
from rskip.connections.linear import Gate
from rskip.connections.norms import LayerNorm
from rskip.connections.sas_function import SASFunction
from rskip.formulas.gated import SAS


@computes(SAS)
class SASConnection(FormulaConnection):
    """Computes `SAS`."""

    alpha_gate: Gate
    beta_gate: Gate
    kernel_form = FormulaConnection.kernel_form

    def combine(self, x: Tensor, f: Tensor) -> Tensor:
        return self._combined(x, f) if self._as_one_function(x, f) else super().combine(x, f)

    def _as_one_function(self, x: Tensor, f: Tensor) -> bool:
        """Whether to use `SASFunction`: formula and types match, memory traffic dominates, and no hook is registered.

        It is not used under torch.compile, because the compiler fuses the formula into one kernel.
        """
        if x.device.type == "cpu" or torch.compiler.is_compiling():
            return False
        if x.dtype not in (torch.bfloat16, torch.float16) or x.dtype != f.dtype:
            return False
        norm = getattr(self, "norm", None)
        if self.alpha_gate.hidden is None or hasattr(self, "gamma_gate") or not isinstance(norm, LayerNorm):
            return False
        if norm.bias is None:
            return False
        modules = self.alpha_gate, self.beta_gate, norm
        hooked = any(module._forward_hooks or module._forward_pre_hooks for module in modules)
        return self.feature_dim == -1 and norm.weight.dtype == x.dtype and not hooked

    def _combined(self, x: Tensor, f: Tensor) -> Tensor:
        norm, (alpha, beta) = self.norm, (dict(gate.named_parameters()) for gate in (self.alpha_gate, self.beta_gate))
        assert isinstance(norm, LayerNorm)
        names = "hidden.weight", "hidden.bias", "output.weight", "output.bias"
        gates = [torch.cat([alpha[name], beta[name]]) for name in names]
        return SASFunction.apply(x, f, *gates, norm.weight, norm.bias, norm.eps)
