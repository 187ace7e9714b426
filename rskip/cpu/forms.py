"""The forms of the connections of published models, from a spec and the weights of a file. It needs no PyTorch.

It repeats `as_norms` and `as_gates` of these families. A spec that it does not understand completely is left to
PyTorch, which words the error.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from rskip.kernel_forms import GatedSum, NoKernelForm, NormalisedSum
from rskip.settings.errors import SettingError, shown

if TYPE_CHECKING:
    from rskip.cpu.weights import Norm, Weights

_LONGEST = 500  # characters of a spec
_SPEC = re.compile(  # as in rskip.connections.spec
    r"(?P<factor>[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)?"
    r"(?P<family>[a-z][a-z0-9_]*)"
    r"(?:\+(?P<norm>[^:+]*))?"
    r"(?::(?P<options>.*))?"
)
_POSITIVE, _NUMBERS = (1e-6, 1e6), (-1e6, 1e6)


@dataclass(frozen=True)
class _Family:
    """What a spec of the family may contain.

    :param norms: as `Family.norms`, those on text.
    :param factor: the type of the λ before its name; None: it takes none.
    :param options: the words of each option, or the least and the greatest number.
    """

    norms: tuple[str | None, ...]
    factor: type | None = None
    default_norm: str | None = None
    options: dict[str, tuple[str, ...] | tuple[float, float]] = field(default_factory=dict)


# No class of a user can replace these families.
_FAMILIES = {
    "xskip": _Family((None, "ln", "rms"), float, options={"branch_scale": _POSITIVE}),
    "rskip": _Family(("ln", "rms"), int),
    "wskip": _Family(("ln", "rms"), options={"init": _NUMBERS}),
    "prenorm": _Family(("ln", "rms")),
    "highway": _Family((None,), options={"gate": ("transform", "shortcut", "single", "full"), "bias": _NUMBERS}),
    "sas": _Family(("ln", "rms"), default_norm="ln", options={
        "gate": ("full", "single"), "gamma": ("tied", "free"), "norm_term": ("true", "false"), "alpha_bias": _NUMBERS,
        "beta_bias": _NUMBERS, "host": ("postnorm", "prenorm"),
    }),
}  # fmt: skip
# Options that only PyTorch can build.
_OPTIONS_IN_PYTORCH = {"wskip": ("rate", "floor")}


@dataclass(frozen=True)
class Spec:
    """A spec of one of these families, in parts."""

    family: str
    factor: float
    norm: str | None
    options: dict[str, str]

    @classmethod
    def read(cls, text: Any) -> Spec:
        """:raises NoKernelForm: it is not a valid spec of one of these families."""
        match = _SPEC.fullmatch(text.strip().lower()) if isinstance(text, str) and len(text) <= _LONGEST else None
        if match is None:
            raise _invalid(text)
        family = _FAMILIES.get(match["family"])
        if family is None:
            others = ", ".join(_FAMILIES)
            raise NoKernelForm(f"the connection {shown(text)} needs PyTorch: only {others} run without it")
        pairs = [] if match["options"] is None else [item.partition("=") for item in match["options"].split(",")]
        options = {name.strip(): value.strip() for name, _, value in pairs}
        norm = family.default_norm if match["norm"] is None else match["norm"]
        if len(options) < len(pairs) or norm not in family.norms:
            raise _invalid(text)
        if not options.keys().isdisjoint(_OPTIONS_IN_PYTORCH.get(match["family"], ())):
            raise NoKernelForm(f"the connection {text!r} needs PyTorch")
        if not all(name in family.options and _fits(value, family.options[name]) for name, value in options.items()):
            raise _invalid(text)
        if options.get("norm_term") == "false" and (norm != "ln" or options.get("gamma") == "free"):
            raise _invalid(text)
        return cls(match["family"], _factor(text, match["factor"], family), norm, options)


def _invalid(text: Any) -> NoKernelForm:
    """The error for a spec that is not valid. With PyTorch installed, its more precise error is shown instead."""
    problem = f"{shown(text)} is not a valid connection"
    return NoKernelForm(problem, without_torch=SettingError("", problem, expected="one such as 2rskip+ln"))


def _fits(value: str, kind: tuple[str, ...] | tuple[float, float]) -> bool:
    if isinstance(kind[0], str):
        return value in kind
    try:
        return float(kind[0]) <= float(value) <= float(kind[1])
    except ValueError:
        return False


def _factor(text: Any, given: str | None, family: _Family) -> float:
    if (given is None) != (family.factor is None):
        raise _invalid(text)
    factor = 1.0 if given is None else float(given)
    if not 1e-6 <= factor <= 1e6 or (family.factor is int and (factor != int(factor) or factor > 100)):
        raise _invalid(text)
    return factor


@dataclass(frozen=True)
class Connections:
    """Builds the forms of one stack's connections."""

    weights: Weights
    spec: Spec
    features: int

    def form(self, name: str) -> NormalisedSum | GatedSum:
        """The connection with this name, such as `encoder.layers.0.ffn_connection`."""
        built: NormalisedSum | GatedSum = getattr(self, f"_{self.spec.family}")(name)
        return built

    @property
    def closing_norm(self) -> str | None:
        """The kind of the normalisation that closes the stack, or None."""
        closes = self.spec.family == "prenorm" or self._option("host", "postnorm") == "prenorm"
        return self.spec.norm if closes else None

    def _option(self, name: str, default: str) -> str:
        return self.spec.options.get(name, default)

    def _norm(self, name: str) -> Norm:
        return self.weights.norm(name, self.spec.norm, self.features)

    def _xskip(self, name: str) -> NormalisedSum:
        norms = [self._norm(f"{name}.norm")] if self.spec.norm else []
        return NormalisedSum(norms=norms, scale=self.spec.factor, branch_scale=float(self._option("branch_scale", "1")))

    def _rskip(self, name: str) -> NormalisedSum:
        return NormalisedSum(norms=[self._norm(f"{name}.norms.{each}") for each in range(int(self.spec.factor))])

    def _wskip(self, name: str) -> NormalisedSum:
        scale = self.weights.numbers(f"{name}.skip_weight", self.features)
        return NormalisedSum(norms=[self._norm(f"{name}.norm")], scale=scale)

    def _prenorm(self, name: str) -> NormalisedSum:
        return NormalisedSum(branch_norm=self._norm(f"{name}.norm"))

    def _sas(self, name: str) -> GatedSum:
        full = self._option("gate", "full") == "full"
        gates = [f"{each}_gate" for each in ("alpha", "beta")]
        alpha, beta = (self._gate(f"{name}.{each}", 2 * self.features, 1, hidden=full) for each in gates)
        free, norm = self._option("gamma", "tied") == "free", self._option("norm_term", "true") == "true"
        prenorm = self._option("host", "postnorm") == "prenorm"
        return GatedSum(
            form="scaling", over="both", alpha=alpha, beta=beta,
            gamma=self._gate(f"{name}.gamma_gate", 2 * self.features, 1, hidden=full) if free else None,
            norm=self._norm(f"{name}.norm") if norm else None,
            branch_norm=self._norm(f"{name}.branch_norm") if prenorm else None,
        )  # fmt: skip

    def _highway(self, name: str) -> GatedSum:
        kind = self._option("gate", "transform")
        both = kind in ("single", "full")
        inputs, outputs = (2 * self.features, 1) if both else (self.features, self.features)
        gate = self._gate(f"{name}.gate", inputs, outputs, hidden=kind == "full")
        form: Any = "shortcut" if kind == "shortcut" else "highway"
        return GatedSum(form=form, over="both" if both else "x", alpha=gate)

    def _gate(self, name: str, inputs: int, outputs: int, *, hidden: bool) -> SimpleNamespace:
        first = self.weights.linear(f"{name}.hidden", inputs, self.features) if hidden else None
        last = self.weights.linear(f"{name}.output", self.features if hidden else inputs, outputs)
        return SimpleNamespace(hidden=first, output=last)
