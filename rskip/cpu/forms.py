"""The kernels' forms of the connections of a model in a file. It needs NumPy, but no PyTorch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from rskip.formulas import (
    ConnectionSpec,
    Gate,
    Map,
    Mixture,
    Norm,
    Number,
    Place,
    UnknownFamily,
    check_connection,
    find_family,
    parse_connection,
)
from rskip.formulas.kernels import kernel_form
from rskip.kernel_forms import GatedSum, NoKernelForm, NormalisedSum

if TYPE_CHECKING:
    from rskip.cpu.weights import Weights

_BRANCHES = {"self_attn_connection": "self_attn", "encoder_attn_connection": "encoder_attn", "ffn_connection": "ffn"}


class Connections:
    """Builds the forms of one stack's connections.

    :param text: their spec.
    :param layers: number of the stack's layers; `others`: of the other stack.
    :raises SettingError: the spec is not valid.
    :raises NoKernelForm: only PyTorch can build such a connection.
    """

    def __init__(self, weights: Weights, text: str, side: str, features: int, *, layers: int, others: int) -> None:
        self.weights, self.side, self.features, self._layers, self._others = weights, side, features, layers, others
        try:
            self.spec: ConnectionSpec = parse_connection(text)
        except UnknownFamily:
            raise NoKernelForm(f"the connection {text!r} needs PyTorch") from None
        check_connection(self.spec, -1)
        self.closing_norm = self.spec.closing_norm

    def form(self, layer: int, member: str) -> NormalisedSum | GatedSum:
        """The layer's connection with this name, such as `ffn_connection`."""
        family, settings = find_family(self.spec.family), self.spec.settings
        name = f"{self.side}.layers.{layer}.{member}"
        if family.needs_place:
            settings["place"] = self._place(layer, _BRANCHES[member])
        formula = family.connection(**settings) if family.is_formula else None
        if formula is not None and not (formula.inner_norms or formula.scales_heads or formula.stack):
            stated = kernel_form(formula, lambda term: self._value(name, term))
            if stated is not None:
                return stated
        raise NoKernelForm(f"the connection {str(self.spec)!r} needs PyTorch")

    def _place(self, layer: int, branch: str) -> Place:
        branches = ["self_attn", "ffn"] if self.side == "encoder" else ["self_attn", "encoder_attn", "ffn"]
        sublayer = layer * len(branches) + branches.index(branch) + 1
        blocks = self._layers * len(branches)
        return Place(self.side, branch, sublayer, blocks, layer + 1, self._layers, self._others)

    def _value(self, connection: str, term: Any) -> Any:
        """The number or the arrays of a term or factor."""
        if isinstance(term, (int, float)):
            return float(term)
        if isinstance(term, Number):
            return float(term.value)
        name, features = f"{connection}.{term.name}", self.features
        if isinstance(term, Norm):
            return self.weights.norm(name, term.kind, features)
        if isinstance(term, Map):
            inputs = term.of.outputs if isinstance(term.of, Map) else None
            return self.weights.linear(name, inputs or features, term.outputs or features, has_bias=False)
        if isinstance(term, Gate):
            inputs, outputs = len(term.over) * features, 1 if term.scalar else features
            hidden = self.weights.linear(f"{name}.hidden", inputs, features) if term.hidden else None
            output = self.weights.linear(f"{name}.output", features if term.hidden else inputs, outputs)
            return SimpleNamespace(hidden=hidden, output=output)
        if isinstance(term, Mixture) or term.bound != "none" or term.rate != 1:
            raise NoKernelForm(f"the connection {str(self.spec)!r} needs PyTorch")
        size = term.size or features
        numbers = self.weights.numbers(name, size)
        return numbers if size == 1 else np.repeat(numbers, features // size)
