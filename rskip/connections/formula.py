"""Connections whose formula consists of terms (`rskip.formulas`), computed by PyTorch."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from rskip.connections.connection import Connection, HostNeed, Resettable, StackConnection, State, opened, tensors
from rskip.connections.linear import Gate, LinearMap
from rskip.connections.norms import FirstGain, at_least_float32, build_norm, features_to
from rskip.formulas import terms
from rskip.formulas.kernels import kernel_form
from rskip.formulas.terms import Coefficient, Formula, Learned, Member, Number, Rest, StackFormula, Term, X, members
from rskip.kernel_forms import GatedSum, NormalisedSum

_GLOBALS = {
    "torch": torch, "functional": functional, "at_least_float32": at_least_float32, "features_to": features_to
}  # fmt: skip
_special: dict[type[Formula], type[FormulaConnection]] = {}


class _Written(Resettable):
    """Builds the members of terms, and writes the terms as functions."""

    _functions: ClassVar[tuple[str, ...]]

    def _write(self) -> None:
        """Sets the functions, which a copy or a pickle does not contain."""
        raise NotImplementedError

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in self._functions}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._write()

    def _function(
        self, arguments: str, results: list[Any], keeps: Mapping[str, Term] | None = None, *, name: str = ""
    ) -> Callable[..., Any]:
        """The terms (or factors) as a function of these arguments, which returns the one result, or a tuple.

        :param keeps: terms that the names of streams in the results stand for.
        :param name: of the function, if another one of the module may have as many arguments.
        """
        code = _Code(getattr(self, "feature_dim", -1), prefix=f"{name}{arguments.count(',')}")
        code.symbols |= {name: code.local(name, code.term(term)) for name, term in (keeps or {}).items()}
        values = [code.term(each) if isinstance(each, Term) else code.factor(each) for each in results]
        for symbol, number in code.numbers.items():  # not in the source, so that all depths have one function
            setattr(self, symbol, number)
        body = [*code.lines, f"return {', '.join(values)}"]
        return _executed("\n    ".join([f"def formula({arguments}):", *body]) + "\n")

    def _add(self, given: Iterable[Term], features: int, feature_dim: int) -> None:
        for member in members(*given):
            path, _, name = member.name.rpartition(".")
            built = self._built(member, features, feature_dim)
            if path:
                if not hasattr(self, path):
                    self.add_module(path, nn.ModuleList())
                self.get_submodule(path).add_module(name, built)  # type: ignore[arg-type]
            else:
                setattr(self, name, built)

    def _built(self, member: Member, features: int, feature_dim: int) -> nn.Module | nn.Parameter:
        if isinstance(member, Learned):
            return self.learned(member.name, member.first, features if member.size is None else member.size)
        if isinstance(member, terms.Mixture):
            return self.learned(member.name, member.first)
        if isinstance(member, terms.Gate):
            hidden = features if member.hidden else None
            return Gate(len(member.over) * features, 1 if member.scalar else features, hidden=hidden, bias=member.bias)
        if isinstance(member, terms.Map):
            inputs = member.of.outputs if isinstance(member.of, terms.Map) else None
            first = nn.init.zeros_ if member.zero else None
            built = LinearMap(inputs or features, member.outputs or features, first_weight=first, first_bias=None)
            if member.zero:
                built.reset_parameters()
            return built
        norm = build_norm(member.kind, features, feature_dim)
        return norm if member.first_gain == 1 else FirstGain(norm, member.first_gain)


class FormulaConnection(_Written, Connection):
    """Computes a formula. Its members have the names of the formula's terms.

    `class SASConnection(FormulaConnection, computes=SAS)` computes this formula and those derived from it.

    :param formula: such as `XSkip(scale=2, norm="ln")`.
    """

    _functions = ("_read", "_join")
    _read: Callable[..., Any]
    _join: Callable[..., Any]

    def __init_subclass__(cls, computes: type[Formula] | None = None, **settings: Any) -> None:
        if computes is None:
            super().__init_subclass__(**settings)
        else:
            _special[computes] = cls

    def __init__(self, features: int, formula: Formula, *, feature_dim: int = -1) -> None:
        Connection.__init__(self, features, feature_dim=feature_dim)
        self.formula = formula
        self.branch_gain, self.needs_profile = formula.branch_gain, formula.needs_profile
        self.inner_norms, self.scales_heads = formula.inner_norms, formula.scales_heads
        outputs = formula.becomes.values() if formula.becomes else [formula.y]
        self._add([*formula.keeps.values(), *outputs, formula.reads], features, feature_dim)
        self._write()

    def _write(self) -> None:
        """Writes the terms as two functions, one for `before` and one for `after`."""
        formula, streams = self.formula, self.formula.becomes
        kept, names = [terms.Symbol(name) for name in streams], ", ".join(streams or "x")
        self._read = self._function(f"self, {names}", [formula.reads, *kept], formula.keeps)
        self._join = self._function(f"self, {names}, f", list(streams.values()) or [formula.y])

    def before(self, state: State) -> tuple[Tensor, State]:
        streams = self.formula.becomes
        if not streams:
            return self.branch_input(state), state  # type: ignore[arg-type]
        given, *kept = self._read(self, *tensors(state, self, len(streams)))
        return given, tuple(kept)

    def after(self, kept: State, f: Tensor) -> State:
        if not self.formula.becomes:
            return self(kept, f)  # type: ignore[arg-type]
        streams = self._join(self, *kept, f)
        return tuple(stream.to(former.dtype) for stream, former in zip(streams, kept, strict=True))

    def branch_input(self, x: Tensor) -> Tensor:
        given: Tensor = self._read(self, x)
        return given

    def combine(self, x: Tensor, f: Tensor) -> Tensor:
        y: Tensor = self._join(self, x, f)
        return y

    @property
    def passes_x(self) -> bool:
        return not self.formula.becomes

    @property
    def reads_x(self) -> bool:
        return self.formula.reads == X

    @property
    def input_slot(self) -> str | None:
        reads = self.formula.reads
        if isinstance(reads, terms.Sum):
            reads = reads.parts[0][1]
        return reads.name if isinstance(reads, terms.Norm) else None

    @property
    def output_slot(self) -> str | None:
        y = self.formula.becomes.get("x", self.formula.y)
        norms = [each for each in members(y) if isinstance(each, terms.Norm) and each.of != terms.F]
        return norms[-1].name if norms else None

    @property
    def host_needs(self) -> tuple[HostNeed, ...]:
        opened_stack = self.formula.stack is not None and self.passes_x
        return (*super().host_needs, *(("stack",) if opened_stack else ()))

    def _get_name(self) -> str:
        return type(self.formula).__name__

    def kernel_form(self) -> NormalisedSum | GatedSum | None:
        return kernel_form(self.formula, self._value)

    def _value(self, stated: Any) -> Any:
        if isinstance(stated, terms.Mixture):
            return torch.softmax(at_least_float32(self.get_parameter(stated.name)), 0)
        if isinstance(stated, (terms.Norm, terms.Map, terms.Gate)):
            return self.get_submodule(stated.name)
        return _number(stated) if isinstance(stated, (int, float, Number)) else self._function("self", [stated])(self)


def connection_of(formula: Formula, features: int, feature_dim: int) -> FormulaConnection:
    """Builds the module that computes the formula."""
    kinds = (_special[base] for base in type(formula).__mro__ if base in _special)
    return next(kinds, FormulaConnection)(features, formula, feature_dim=feature_dim)


class FormulaStack(_Written, StackConnection):
    """Opens and closes a stack as a `StackFormula` says. Its members have the names of the terms."""

    _functions = ("_enter", "_leave")
    _enter: Callable[..., Any]
    _leave: Callable[..., Any]

    def __init__(self, features: int, formula: StackFormula) -> None:
        StackConnection.__init__(self, features)
        self.formula = formula
        self._add([formula.enters, X if formula.leaves is None else formula.leaves], features, -1)
        self._write()

    def _write(self) -> None:
        formula = self.formula
        self._enter = self._function("self, x", [formula.enters])
        names = ", ".join(formula.streams or "x")
        left = X if formula.leaves is None else formula.leaves
        self._leave = self._function(f"self, {names}", [left], name="leave")

    @property
    def opens(self) -> bool:
        return bool(self.formula.streams) or self.formula.enters != X

    @property
    def closes(self) -> bool:
        return self.formula.leaves is not None

    def enter(self, x: Tensor) -> State:
        formula = self.formula
        if formula.streams:
            return opened(*(at_least_float32(x) if name in formula.wide else x for name in formula.streams))
        entered: Tensor = self._enter(self, x)
        return entered

    def leave(self, state: State) -> Tensor:
        streams: Any = tensors(state, self, len(self.formula.streams)) if self.formula.streams else (state,)
        left: Tensor = self._leave(self, *streams)
        return left.to(streams[0].dtype)


def _number(coefficient: float | Number) -> float:
    return float(coefficient.value if isinstance(coefficient, Number) else coefficient)


@cache
def _executed(source: str) -> Callable[..., Any]:
    """The function of this source, which tracebacks show. Equal formulas are one function, compiled once."""
    name = f"<formula {abs(hash(source))}>"
    linecache.cache[name] = len(source), None, source.splitlines(keepends=True), name
    found: dict[str, Any] = {}
    exec(compile(source, name, "exec"), _GLOBALS, found)
    function: Callable[..., Any] = found["formula"]
    return function


def _member(path: str) -> str:
    """An expression for a module. `Module.__getattr__` takes as long as an addition."""
    return "self" + "".join(f"._modules[{name!r}]" for name in path.split("."))


class _Code:
    """Writes terms as Python: `lines` assign the values that the returned expressions use."""

    def __init__(self, feature_dim: int, prefix: str) -> None:
        self.images, self._prefix = feature_dim == 1, prefix
        self.lines: list[str] = []
        self.symbols: dict[str, str] = {}
        self.numbers: dict[str, float] = {}
        self._written: dict[Any, str] = {}

    def local(self, name: str, expression: str) -> str:
        """The name of a new variable with this value."""
        unique = f"{name.replace('.', '_')}_{len(self.lines)}"
        self.lines.append(f"{unique} = {expression}")
        return unique

    def term(self, term: Term) -> str:
        """An expression for the term."""
        if isinstance(term, terms.Symbol):
            return self.symbols.get(term.name, term.name)
        if isinstance(term, terms.Sum):
            return self._sum(term)
        if term not in self._written:
            assert isinstance(term, (terms.Norm, terms.Map, terms.Mixture))
            self._written[term] = self.local(term.name, self._member(term))
        return self._written[term]

    def _member(self, term: terms.Norm | terms.Map | terms.Mixture) -> str:
        if isinstance(term, terms.Mixture):
            ys = [self.term(each) for each in term.of]
            shares = self.local("shares", f"torch.softmax(at_least_float32(self.{term.name}), 0)")
            return " + ".join(f"{shares}[{index}] * {y}" for index, y in enumerate(ys))
        of = self.term(term.of)
        if isinstance(term, terms.Map) and self.images:
            return f"{_member(term.name)}({of}.movedim(1, -1)).movedim(-1, 1)"
        return f"{_member(term.name)}({of})"

    def _sum(self, term: terms.Sum) -> str:
        parts = [(self.factor(factor), factor, self.term(part)) for factor, part in term.parts]
        first = next((index for index, (written, _, _) in enumerate(parts) if written == "1"), 0)
        written, _, part = parts.pop(first)
        total = part if written == "1" else f"{written} * {part}"
        for written, factor, part in parts:
            if written == "1":
                total = f"{total} + {part}"
            elif isinstance(factor, (int, float, Number)):
                total = f"torch.add({total}, {part}, alpha={written})"
            elif isinstance(factor, Learned):
                total = f"torch.addcmul({total}, {written}, {part})"
            else:
                total = f"{total} + {written} * {part}"
        return f"({total})"

    def factor(self, factor: Coefficient) -> str:
        """An expression for a factor."""
        if isinstance(factor, (int, float, Number)):
            number = _number(factor)
            if number == 1 or not isinstance(factor, Number):
                return "1" if number == 1 else repr(number)
            symbol = f"_number_{self._prefix}{len(self.numbers)}"  # no other function of the module has this name
            self.numbers[symbol] = number
            return f"self.{symbol}"
        if isinstance(factor, Learned):
            return self._learned(factor)
        if isinstance(factor, Rest):
            return " * ".join(f"(1 - {self.factor(gate)})" for gate in factor.gates)
        if factor not in self._written:
            given = f"torch.cat([x, f], {1 if self.images else -1})" if len(factor.over) == 2 else "x"
            if given != "x" and given not in self._written:
                self._written[given] = self.local("both", given)
            given = self._written.get(given, given)
            opening = f"{_member(factor.name)}({given + '.movedim(1, -1)' * self.images})"
            self._written[factor] = self.local(factor.name, f"features_to(1, {opening})" if self.images else opening)
        return self._written[factor]

    def _learned(self, factor: Learned) -> str:
        value = f"self.{factor.name}"
        if factor.rate != 1 or factor.bound != "none":
            value = f"at_least_float32({value})"
        centre = factor.first if factor.centre is None else factor.centre
        if factor.rate != 1 or centre != factor.first:
            value = f"({centre!r} + {factor.rate!r} * ({value} - {factor.first!r}))"
        if factor.bound == "floor":
            value = f"({factor.floor!r} + functional.softplus({value}))"
        elif factor.bound == "sigmoid":
            value = f"torch.sigmoid({value})"
        elif factor.bound == "softmax":
            value = f"torch.sigmoid({value} - at_least_float32(self.{factor.against}))"
        if value.endswith(")"):  # in float32 or better; one number does not change the type of a product
            value = f"{value}.squeeze(0)" if factor.size == 1 else f"{value}.to(self.{factor.name}.dtype)"
        if factor.size not in (None, 1):
            value = f"{value}.repeat_interleave(self.features // {factor.size})"
        return f"self.of_features({value}, x)" if self.images and factor.size != 1 else value
