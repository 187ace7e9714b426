"""The terms of a formula: sums, normalisations, gates and learned factors of x and f. They need no PyTorch.

A formula is written once, with the names of the members that hold its parameters:

    y = Norm("norm", "ln", Learned("skip_weight") * X + F)

PyTorch's forward pass (`rskip.connections.FormulaConnection`), the printed formula (`text.py`), folding (`folds.py`)
and the form that the compiled kernels compute (`kernels.py`) follow from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

Settings = Mapping[str, Any]  # the norm, the λ and all options of a spec, by the constructor's parameters

# Positions inside a branch that can be normalised. In attention: each head's queries, keys and values, the joined heads
# before the output map, and that map's output. In a feed-forward branch: the hidden features before its last map.
InnerNorm = Literal["query", "key", "value", "heads", "output", "hidden"]


@dataclass(frozen=True)
class Number:
    """A number that is printed as `symbol`; `meaning` says what it is, such as "α by depth"."""

    value: float
    symbol: str
    meaning: str = ""


@dataclass(frozen=True)
class Learned:
    """A learned factor of a term: one number, one per feature, or one for each of several equal parts of the features.

    Let p be the parameter. The factor is p, and centre + rate·(p - first) with a `rate`, which multiplies Adam's
    learning rate (SGD's by rate²). `bound` maps that value: to floor + softplus(value), σ(value), or σ(value - q), the
    first of the softmax of p and the parameter `against`, q.

    :param name: the member, a parameter of shape (`size`) or (C).
    :param first: p's initial value; `centre`: the value there, None: `first`.
    :param size: number of values, such as 1 or the number of heads, which divides C; None: one per feature.
    """

    name: str
    first: float = 1.0
    size: int | None = None
    symbol: str = "w"
    rate: float = 1.0
    centre: float | None = None
    bound: Literal["none", "floor", "sigmoid", "softmax"] = "none"
    floor: float = 0.0
    against: str = ""


@dataclass(frozen=True)
class Gate:
    """A factor σ(zW + b), or with a hidden layer σ(tanh(zW_f + b_f)W_ff + b_ff), where z is x or [x; f].

    :param name: the member, a `rskip.connections.linear.Gate`.
    :param scalar: one factor per position instead of one per feature.
    :param bias: initial value of the last bias.
    """

    name: str
    over: tuple[Symbol, ...]
    symbol: str
    scalar: bool = True
    hidden: bool = False
    bias: float = 0.0

    def __post_init__(self) -> None:
        assert self.over in ((X,), (X, F)), "a gate reads x or [x; f]"

    def __rsub__(self, one: float) -> Rest:
        assert one == 1, "only 1 - gate is a factor"
        return Rest((self,))


@dataclass(frozen=True)
class Rest:
    """The product of 1 - g for these gates g."""

    gates: tuple[Gate, ...]

    def __mul__(self, other: Rest) -> Rest:
        return Rest(self.gates + other.gates) if isinstance(other, Rest) else NotImplemented


Coefficient = float | Number | Learned | Gate | Rest


class Term:
    """An expression of x, f and the stack's streams. Terms are added, and multiplied by a coefficient from the left."""

    def __add__(self, other: Term) -> Sum:
        return Sum(_parts(self) + _parts(other))

    def __rmul__(self, coefficient: Coefficient) -> Sum:
        return Sum(((coefficient, self),))


@dataclass(frozen=True)
class Symbol(Term):
    """x, f or a stream."""

    name: str


X, F = Symbol("x"), Symbol("f")


@dataclass(frozen=True)
class Sum(Term):
    """Σ coefficient·term."""

    parts: tuple[tuple[Coefficient, Term], ...]


@dataclass(frozen=True)
class Norm(Term):
    """norm(of).

    :param name: the member.
    :param kind: ln, rms, gn1 or bn.
    :param first_gain: the gain's initial value.
    """

    name: str
    kind: str
    of: Term
    first_gain: float = 1.0


@dataclass(frozen=True)
class Map(Term):
    """A linear map of `of`, without a bias.

    :param name: the member.
    :param outputs: number of its outputs; None: as many as features.
    :param zero: whether its weight starts at 0; otherwise it starts as in `nn.Linear`.
    """

    name: str
    of: Term
    outputs: int | None = None
    zero: bool = False


@dataclass(frozen=True)
class Mixture(Term):
    """Σ_k s_k·of_k with s = softmax of the learned logits, whose member is `name` and initial values are `first`."""

    name: str
    first: tuple[float, ...]
    of: tuple[Term, ...]


Member = Learned | Gate | Norm | Map | Mixture  # what has parameters


def _parts(term: Term) -> tuple[tuple[Coefficient, Term], ...]:
    return term.parts if isinstance(term, Sum) else ((1, term),)


def members(*terms: Term) -> Iterator[Member]:
    """What has parameters, each once, in the order in which it is computed."""
    seen: list[Member] = []
    for term in terms:
        for each in _walk(term):
            if each not in seen:
                seen.append(each)
                yield each


def _walk(term: Term) -> Iterator[Member]:
    if isinstance(term, Sum):
        for coefficient, part in term.parts:
            if isinstance(coefficient, (Learned, Gate)):
                yield coefficient
            elif isinstance(coefficient, Rest):
                yield from coefficient.gates
            yield from _walk(part)
    elif isinstance(term, Mixture):
        for part in term.of:
            yield from _walk(part)
        yield term
    elif isinstance(term, (Norm, Map)):
        yield from _walk(term.of)
        yield term


class Described:
    """What a connection says of itself: a `Formula`, or a `Connection` of PyTorch.

    These attributes of a class are properties of its family:

    - closing_norm: whether the spec's normalisation, if it has one, also closes a stack of such blocks. ("host",
      "prenorm") means only if the option host is prenorm.
    - text_only: whether features must come last though the state is x.
    - reads_earlier_layers: whether blocks also pass on the outputs of earlier layers.
    - stack: the class that opens and closes a stack.
    - only_with: options that work only with one value of another option, such as {"rank": ("form", "lr")}.

    These are properties of a connection, which a class or a property may set:

    - branch_gain: factor for the initial values of the branch's value, output and feed-forward weights.
    - inner_norms: the normalisations (`ln`, `rms`) that a model must build inside the branch, by their position.
    - scales_heads: whether a model must multiply each head's output by a learned factor that starts at 1.
    - splits_inputs: whether attention must read its keys and values from `key_value_inputs`.
    - needs_profile: whether a pass over data sets its initial values (see `rskip.connections.admin_profiling`).
    """

    closing_norm: ClassVar[bool | tuple[str, object]] = False
    text_only: ClassVar[bool] = False
    reads_earlier_layers: ClassVar[bool] = False
    stack: ClassVar[type[Any] | None] = None
    only_with: ClassVar[Mapping[str, tuple[str, object]]] = {}
    branch_gain: float = 1.0
    inner_norms: Mapping[InnerNorm, str] = {}
    scales_heads: bool = False
    splits_inputs: bool = False
    needs_profile: bool = False

    @classmethod
    def check(cls, settings: Settings) -> str | None:
        """What a spec must be, if these settings contradict each other; otherwise None."""


class Formula(Described):
    """A connection as terms.

    A class's constructor has keyword parameters for what a spec can say: `norm`, the λ, every option, and `place` if
    the formula depends on the block position (`parameters.py`). It sets the attributes:

    :ivar reads: the branch's input.
    :ivar y: the block's output, if the state is x.
    :ivar becomes: if blocks pass on several streams, their values after the block, by name. `keeps`: the values that
        the names in `reads` and `becomes` stand for, where they are not the streams themselves.

    and those of `Described`.
    """

    reads: Term = X
    y: Term = X
    becomes: Mapping[str, Term] = {}
    keeps: Mapping[str, Term] = {}


class StackFormula:
    """What opens and closes a stack of blocks. Its constructor takes `norm`.

    :ivar streams: names of the streams if the state is not x. Each starts as the stack's input.
    :ivar enters: the first block's state from the stack's input x, if the state is x.
    :ivar leaves: the stack's output from the last block's state; None: x.
    :ivar wide: streams in float32 or better.
    """

    streams: tuple[str, ...] = ()
    enters: Term = X
    leaves: Term | None = None
    wide: tuple[str, ...] = ()
