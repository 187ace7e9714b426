"""SAS (`rskip.formulas.gated`) as one autograd function, with the compiled kernels or in half precision on a GPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from rskip.connections.formula import FormulaConnection
from rskip.connections.linear import Gate, LinearMap
from rskip.connections.norms import LayerNorm, under_autocast, without_autocast
from rskip.connections.stream_kernels import (
    Kernels,
    address,
    check_first_order,
    described,
    fused,
    hooked,
    kernels_for,
    readable,
    under_transforms,
)
from rskip.cpu.library import Library
from rskip.cpu.structures import Scaling, packing
from rskip.formulas.gated import SAS

_NAMES = ["hidden.weight", "hidden.bias", "output.weight", "output.bias"]  # of a gate's parameters
_GIVEN = ("x", "f", "hidden", "bias", "v", "c", "gain", "shift")
_FORWARD = packing(Scaling, *_GIVEN, "y", "statistics", "features", "norm", "epsilon")
_BACKWARD = packing(
    Scaling, *_GIVEN, "statistics", "of_y", "of_x", "of_f", "of_hidden", "of_parameters", "features", "norm", "tokens",
    "epsilon",
)  # fmt: skip


class SASConnection(FormulaConnection, computes=SAS):
    """Computes `SAS`."""

    alpha_gate: Gate
    beta_gate: Gate
    norm: nn.Module

    def combine(self, x: Tensor, f: Tensor) -> Tensor:
        if (library := kernels_for(x, f)) is not None and (gates := self._gates_for(library)) is not None:
            y = _Scale.apply(library, x, f, *map(torch.cat, gates), *fused(self.norm))
        elif self._as_one_function(x, f):
            y = self._combined(x, f)
        else:
            return super().combine(x, f)
        if self.alpha_gate._forward_hooks or self.beta_gate._forward_hooks:
            with torch.no_grad():  # for hooks that observe the gates' values
                z = torch.cat([x, f], -1)
                self.alpha_gate(z), self.beta_gate(z)
        return y

    def extra_repr(self) -> str:
        library = kernels_for(next(self.parameters()).new_empty(1, self.features))
        return f"{super().extra_repr()}, computed by {described(library if self._gates_for(library) else None)}"

    def _gates_for(self, library: Kernels | None) -> list[tuple[Tensor, Tensor]] | None:
        """`_gates`, if the compiled kernels compute y; otherwise None."""
        if not isinstance(library, Library) or under_autocast(torch.device("cpu")) or not (gates := self._gates()):
            return None
        return gates if fused(self.norm)[0] and all(readable(*pair) for pair in gates) else None

    def _gates(self) -> list[tuple[Tensor, Tensor]] | None:
        """α's and β's weight and bias of the hidden layer, then of the output.

        None, if y is not Eq. 4, or if a gate was changed or has a hook that may change it.
        """
        if type(self.formula) is not SAS or hasattr(self, "gamma_gate") or not hasattr(self, "norm"):
            return None
        gates = self.alpha_gate, self.beta_gate
        parameters = [dict(gate.named_parameters()) for gate in gates]
        modules = [each for gate in gates for each in gate.modules()]
        if any(type(each) not in (Gate, LinearMap) or hooked(each) for each in modules) or hooked(self.norm):
            return None
        if any(list(each) != _NAMES for each in parameters):
            return None
        return list(zip(*(each.values() for each in parameters), strict=True))

    def _as_one_function(self, x: Tensor, f: Tensor) -> bool:
        """Whether to use `SASFunction`: formula and types match, memory traffic dominates, and no hook is registered.

        It is not used under torch.compile, because the compiler fuses the formula into one kernel.
        """
        if x.device.type == "cpu" or torch.compiler.is_compiling() or under_transforms():
            return False
        if x.dtype not in (torch.bfloat16, torch.float16) or x.dtype != f.dtype or self._gates() is None:
            return False
        norm = self.norm
        if not isinstance(norm, LayerNorm) or norm.bias is None:
            return False
        return self.feature_dim == -1 and norm.weight.dtype == x.dtype

    def _combined(self, x: Tensor, f: Tensor) -> Tensor:
        norm, gates = self.norm, self._gates()
        assert isinstance(norm, LayerNorm) and gates is not None
        return SASFunction.apply(x, f, *map(torch.cat, gates), norm.weight, norm.bias, norm.eps)


class _Scale(torch.autograd.Function):
    """As `SASFunction`, with the compiled kernels for all but the products, which need no [x; f]."""

    @staticmethod
    def forward(
        ctx: Any, library: Library, x: Tensor, f: Tensor, weight: Tensor, bias: Tensor, v: Tensor, c: Tensor, *norm: Any
    ) -> Tensor:
        x, f, features, (kind, epsilon, gain, shift) = x.contiguous(), f.contiguous(), x.size(-1), norm
        hidden = x.view(-1, features) @ weight[:, :features].t()
        hidden.addmm_(f.view(-1, features), weight[:, features:].t())
        tokens, y = len(hidden), torch.empty_like(x)
        statistics = x.new_empty(tokens, 4)
        given = x, f, hidden, bias, v, c, gain, shift
        arguments = _FORWARD.pack(*map(address, given), y.data_ptr(), statistics.data_ptr(), features, kind, epsilon)
        library.scale(arguments, tokens, work=8 * x.numel())
        ctx.library, ctx.norm = library, (kind, epsilon)
        ctx.save_for_backward(statistics, weight, *given)
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        statistics, weight, *given = ctx.saved_tensors
        check_first_order()
        x, f, hidden, *parameters = given
        of_y, features, tokens, (kind, epsilon) = gradients[0].contiguous(), x.size(-1), len(hidden), ctx.norm
        of_x, of_f, of_hidden = torch.empty_like(x), torch.empty_like(f), torch.empty_like(hidden)
        of_parameters = x.new_empty(6 * features + 2)
        results = statistics, of_y, of_x, of_f, of_hidden, of_parameters
        arguments = _BACKWARD.pack(*map(address, given), *map(address, results), features, kind, tokens, epsilon)
        ctx.library.scale_gradient(arguments, tokens, work=8 * x.numel())
        of_weight = torch.empty_like(weight)
        with without_autocast(x.device):
            for each, of_each, columns in ((x, of_x, slice(features)), (f, of_f, slice(features, None))):
                of_each.view(tokens, -1).addmm_(of_hidden, weight[:, columns])
                torch.mm(of_hidden.t(), each.view(tokens, -1), out=of_weight[:, columns])
        parts = of_parameters.split([2 * features, 2 * features, 2, features, features])
        found = [None if own is None else part.view_as(own) for part, own in zip(parts, parameters, strict=True)]
        return None, of_x, of_f, of_weight, *found[:3], None, None, *found[3:]


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
        if torch.is_grad_enabled():
            raise RuntimeError(f"create_graph=True: sas in {ctx.saved_tensors[0].dtype} has no gradients of gradients")
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
