"""SAS (`rskip.formulas.gated`), in half precision on a GPU as one autograd function."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rskip.connections.formula import FormulaConnection
from rskip.connections.linear import Gate
from rskip.connections.norms import LayerNorm
from rskip.formulas.gated import SAS


class SASConnection(FormulaConnection, computes=SAS):
    """Computes `SAS`."""

    alpha_gate: Gate
    beta_gate: Gate

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


class SASFunction(torch.autograd.Function):
    """y = αx + βf + (1-α)(1-β) LN(x + f), where α, β = σ(tanh([x; f]Wᵀ + b) · v + c), one per row.

    Source: SAS paper, Eq. 2 and 4. x and f are (..., C), W (2C, 2C) and b (2C) with α's rows above β's, v (2, C) and
    c (2). All have the same type. R rows (positions), C features.

    With plain autograd, the gates' factors are float32, because 1 - S needs the precision near S = 1, and so is
    everything that they multiply. That takes several times the memory and traffic. Here only the factors, one per row
    and gate, are float32. Both gates are one matrix product, and x and f get one gradient each instead of a sum of
    three.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        f: Tensor,
        weight: Tensor,
        bias: Tensor,
        output_weight: Tensor,
        output_bias: Tensor,
        norm_weight: Tensor,
        norm_bias: Tensor,
        eps: float,
    ) -> Tensor:
        features = x.size(-1)
        both = torch.cat([x, f], -1).view(-1, 2, features)  # (R, 2, C)
        hidden = torch.addmm(bias, both.flatten(1), weight.t()).tanh_().view_as(both)
        logits = torch.bmm(hidden.transpose(0, 1), output_weight[:, :, None])[:, :, 0].t()  # (R, 2)
        factors = torch.sigmoid(logits.float() + output_bias.float())
        rest = 1 - factors
        gamma = rest[:, :1] * rest[:, 1:]  # (R, 1)
        total = (x + f).view(-1, features)
        normalised, mean, deviation = torch.native_layer_norm(total, (features,), norm_weight, norm_bias, eps)
        weighted = torch.bmm(factors.to(x.dtype)[:, None], both)[:, 0]
        ctx.save_for_backward(
            both, hidden, factors, gamma, total, normalised, mean, deviation, weight, output_weight, norm_weight,
            norm_bias,
        )  # fmt: skip
        return weighted.addcmul_(gamma, normalised).view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (both, hidden, factors, gamma, total, normalised, mean, deviation, weight, output_weight, norm_weight,
         norm_bias) = ctx.saved_tensors  # fmt: skip
        features, dtype, shape = both.size(2), both.dtype, gradients[0].shape
        of_y = gradients[0].reshape(-1, features)
        column = of_y[:, :, None]
        of_factors = torch.bmm(both, column)[:, :, 0].float()
        of_gamma = torch.bmm(normalised[:, None], column)[:, :, 0].float()
        of_logits = (of_factors - of_gamma * (1 - factors).flip(1)) * factors * (1 - factors)  # (R, 2)
        scale = output_weight.flatten()[:, None]  # (2C, 1), factor of each row of W in the backward pass
        row = of_logits.to(dtype)
        of_hidden = torch.ops.aten.tanh_backward(row[:, :, None], hidden).flatten(1)  # divided by scale
        of_normalised = torch.mul(of_y, gamma, out=torch.empty_like(of_y))
        of_total, of_norm_weight, of_norm_bias = torch.ops.aten.native_layer_norm_backward(
            of_normalised, total, (features,), mean, deviation, norm_weight, norm_bias, [True, True, True]
        )
        of_both = torch.empty_like(both)  # contiguous; the result of broadcasting may not be
        torch.addcmul(of_total[:, None], factors[:, :, None], of_y[:, None], out=of_both)
        of_both = of_both.flatten(1).addmm_(of_hidden, scale * weight)
        return (
            of_both[:, :features].view(shape),
            of_both[:, features:].view(shape),
            scale * (of_hidden.t() @ both.flatten(1)),
            scale[:, 0] * of_hidden.sum(0),
            torch.bmm(row.t()[:, None], hidden.transpose(0, 1))[:, 0],
            of_logits.sum(0).to(dtype),
            of_norm_weight,
            of_norm_bias,
            None,
        )
