"""The interface of a residual connection."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import torch
from torch import Tensor, nn

from rskip.connections.linear import Fill, LinearMap, Values, fill
from rskip.connections.norms import Normalisation, under_autocast
from rskip.formulas.terms import Described
from rskip.kernel_forms import GatedSum, NormalisedSum

State = Tensor | tuple[Tensor, ...]

# What a connection may need from its model in addition to x and f; building.py describes each need.
HostNeed = Literal["inner_norms", "scales_heads", "splits_inputs", "branch_gain", "profile", "stack"]
HOST_NEEDS: tuple[HostNeed, ...] = get_args(HostNeed)


@dataclass(frozen=True, kw_only=True)
class Mixing:
    """u = Σ_j reads_j·s_j and s'_k = Σ_j carries_kj·s_j + adds_k·f.

    s_1 to s_m are the parts of the state before the block, s' those after it (`Connection.parts`). u is the branch's
    input before its normalisation. Dimensions on the left are those of the positions; without them, the weights are the
    same at every position. For the weights of a stack's input, analyses take each part of the stack's first state as
    that input, unless the part is zero everywhere.

    :param reads: shape (..., m).
    :param carries: shape (..., m', m). In hyper-connections this is H_res.
    :param adds: shape (..., m').
    """

    reads: Tensor
    carries: Tensor
    adds: Tensor


class Resettable(nn.Module):
    """A module whose parameters know their initial values."""

    def __init__(self) -> None:
        super().__init__()
        self._first: dict[str, Values | Fill] = {}

    def learned(self, name: str, first: Values | Fill, *shape: int) -> nn.Parameter:
        """A parameter for the member `name` that starts at these values, to which `reset_parameters` resets it.

        :param first: the values; with a shape one number for all of them, or a function that fills the parameter as
            long as the model does not pass its own.
        """
        self._first[name] = first
        parameter = nn.Parameter(torch.empty(shape) if shape else torch.tensor(first))
        fill(parameter, first)
        return parameter

    def reset_parameters(self, weight_init: Fill | None = None) -> None:
        """Sets every parameter to its initial value; `weight_init` fills the weights of linear maps, as in gates.

        In the papers these start like the model's other linear maps, so a model passes their initialisation here. A
        class with parameters of its own that are not `learned` overrides this method.
        """
        own = [name for name, _ in self.named_parameters(recurse=False) if name not in self._first]
        if own and type(self).reset_parameters is Resettable.reset_parameters:
            name = type(self).__name__
            advice = "make them with self.learned, or define reset_parameters, which calls super().reset_parameters"
            warnings.warn(f"{name}.reset_parameters does not reset {', '.join(own)}: {advice}", stacklevel=2)
        for module in self.modules():
            if isinstance(module, LinearMap):
                module.reset_parameters(weight_init)
            elif isinstance(module, (Normalisation, Resettable)) and module is not self:
                module.reset_parameters()
        for name, first in self._first.items():
            fill(self.get_parameter(name), weight_init if weight_init and callable(first) else first)

    @property
    def no_weight_decay(self) -> frozenset[str]:
        """Names of the parameters that take no weight decay: all with fewer than two dimensions.

        A class adds the names of small matrices that must not decay to 0 either, such as mixing weights.
        """
        return frozenset(name for name, parameter in self.named_parameters() if parameter.dim() < 2)


class Connection(Described, Resettable):
    """Decides what a block's branch receives, and what the block passes to the next one, given the branch's output f.

    Every model calls two methods, `before` and `after`:

        given, kept = connection.before(state)
        state = connection.after(kept, branch(given))

    The state is x, or a tuple of tensors; the stack's `enter` returns the first one. It is a value: no module stores
    it, so activations can be recomputed and positions decoded one by one. Tensors are (B, T, C) with
    feature_dim=-1, (N, C, H, W) with feature_dim=1. Names of members are checkpoint API.

    A connection that consists of sums, normalisations, gates and learned factors is stated as a `Formula`. Any other
    derives from this class. In most families the state is x. Then the class implements `combine`, the formula of y in
    terms of x and f, and also `branch_input` if the branch's input isn't x itself. If blocks pass on more than x, it
    overrides `before` and `after`. `register_connection` gives either a name.

    Its attributes are those of `rskip.formulas.terms.Described`.
    """

    stack: ClassVar[type[StackConnection]]
    spec = ""  # the spec that `build_connection` built it from, for readers
    warns_unprofiled = False  # whether its first training step warns if that pass did not run; `Residuals` sets it

    def __init__(self, features: int, *, feature_dim: int = -1) -> None:
        super().__init__()
        self.features = features
        self.feature_dim = feature_dim

    def __init_subclass__(cls, **settings: Any) -> None:
        """A class with a formula of its own does not inherit another class's descriptions of it."""
        super().__init_subclass__(**settings)
        if {"branch_input", "combine", "before", "after", "forward"} & vars(cls).keys():
            for name in ("kernel_form", "as_mixing"):
                if name not in vars(cls):
                    setattr(cls, name, getattr(Connection, name))

    if TYPE_CHECKING:  # nn.Module declares that a call returns Any

        def __call__(self, x: Tensor, f: Tensor) -> Tensor: ...

    def before(self, state: State) -> tuple[Tensor, State]:
        """The branch's input, and the value to pass to `after`."""
        assert isinstance(state, Tensor), "the state of another family"
        return self.branch_input(state), state

    def after(self, kept: State, f: Tensor) -> State:
        """The state after the block, from what `before` kept and the branch's output."""
        return self(kept, f)  # type: ignore[arg-type]

    def key_value_inputs(self, kept: State) -> tuple[Tensor, Tensor] | None:
        """What attention's keys and values read, from what `before` kept; None: the branch's input."""
        return None

    def branch_input(self, x: Tensor) -> Tensor:
        """The branch's input if the state is x: x itself, unless the connection normalises it first."""
        return x

    @classmethod
    def overrides(cls, *names: str) -> bool:
        """Whether the class overrides any of these members of Connection."""
        return any(getattr(cls, name) is not getattr(Connection, name) for name in names)

    @property
    def passes_x(self) -> bool:
        """Whether blocks pass on only x, so that `branch_input` and `forward` can be called."""
        return not self.overrides("before", "after")

    @property
    def reads_x(self) -> bool:
        """Whether the state is x, and the branch's input is x itself."""
        return not self.overrides("before", "after", "branch_input")

    @property
    def input_slot(self) -> str | None:
        """Name of the member that normalises the branch's input, or None."""
        return "norm" if self.closing_norm and "norm" in self._modules else None

    @property
    def output_slot(self) -> str | None:
        """Name of the member that normalises the block's output, or None."""
        return "norm" if not self.closing_norm and "norm" in self._modules else None

    @property
    def host_needs(self) -> tuple[HostNeed, ...]:
        """What the model must supply. Without it, this module computes or starts as a different connection."""
        asked: dict[HostNeed, bool] = {
            "inner_norms": bool(self.inner_norms),
            "scales_heads": self.scales_heads,
            "splits_inputs": self.splits_inputs,
            "branch_gain": self.branch_gain != 1,
            "profile": self.needs_profile,
        }
        return tuple(need for need, wanted in asked.items() if wanted)

    def kernel_form(self) -> NormalisedSum | GatedSum | None:
        """The formula with its values, for the compiled kernels; None if they can't compute it."""
        return None

    def as_mixing(self, state: State, f: Tensor) -> Mixing:
        """The step as weighted sums of the state's parts and f, for analyses. See `Mixing`; few families have it."""
        raise NotImplementedError(f"{type(self).__name__} does not define as_mixing")

    def parts(self, state: State) -> Tensor:
        """The state's tensors, such as its streams: (..., m, C). Features must come last."""
        return torch.stack(state, dim=-2) if isinstance(state, tuple) else state.unsqueeze(-2)

    def combine(self, x: Tensor, f: Tensor) -> Tensor:
        """The formula of y where the state is x. The result may be of a wider type than x."""
        problem = "does not define combine" if self.passes_x else "passes on more than x: call before and after"
        raise NotImplementedError(f"{type(self).__name__} {problem}")

    def forward(self, x: Tensor, f: Tensor) -> Tensor:
        """y, with x's shape and type, for connections whose state is x. `after` returns the same.

        Under autocast, y has the wider type of x and the formula's result. After ln, rms and gn1 that is float32, even
        if x is a convolution's half-precision output. Half precision would lose too much: ResNet-20 with 2rskip+ln
        doesn't train then.

        It checks nothing: `rskip.nn.check_calls` finds a branch whose output has another shape.
        """
        y = self.combine(x, f)
        if y.dtype == x.dtype:
            return y
        return y.to(torch.promote_types(x.dtype, y.dtype) if under_autocast(x.device) else x.dtype)

    def of_features(self, values: Tensor, x: Tensor) -> Tensor:
        """`values` (C), one per feature, reshaped to broadcast with x."""
        return values.view(-1, *[1] * (x.dim() - 2)) if self.feature_dim == 1 else values

    def extra_repr(self) -> str:
        return f"{self.spec and self.spec + ', '}features={self.features}, feature_dim={self.feature_dim}"


def mixing_of(connection: Connection) -> Callable[[State, Tensor], Mixing] | None:
    """The connection's weights as a function of its state and the sublayer output, for analyses; None if its step is
    not a weighted sum of the parts of its state and of the sublayer output."""
    if connection.overrides("as_mixing"):
        return connection.as_mixing
    stated = connection.kernel_form()
    if not isinstance(stated, NormalisedSum) or stated.norms or stated.added or stated.output_norm:
        return None
    if stated.input_scale != 1:
        return None
    factors = [torch.as_tensor(factor).detach().reshape(-1) for factor in (stated.scale, stated.branch_scale)]
    if any(len(factor) > 1 for factor in factors):  # one per feature
        return None
    reads, carries, adds = torch.ones(1), factors[0][None], factors[1]
    return lambda state, f: Mixing(reads=reads, carries=carries, adds=adds)


class StackConnection(Resettable):
    """Opens and closes a stack of blocks. This base class leaves input and output unchanged.

    A family may derive its own class. It is built once per stack, with the same settings as the family's connections.
    C is the number of features. Names of members are checkpoint API.
    """

    def __init__(self, features: int = 0, **settings: Any) -> None:
        super().__init__()

    def enter(self, x: Tensor) -> State:
        """The first block's state from the stack's input x (..., C)."""
        return x

    @property
    def opens(self) -> bool:
        """Whether `enter` does more than to return its input."""
        return type(self).enter is not StackConnection.enter

    @property
    def closes(self) -> bool:
        """Whether `leave` does more than to return its input."""
        return type(self).leave is not StackConnection.leave

    def leave(self, state: State) -> Tensor:
        """The stack's output (..., C) from the last block's state, before a closing normalisation."""
        assert isinstance(state, Tensor), "blocks pass on several tensors: the connection needs a `stack`"
        return state


Connection.stack = StackConnection


def tensors(state: State, user: nn.Module, count: int | None = None) -> tuple[Tensor, ...]:
    """The tensors of a state of several; `count` is their number, if known.

    :raises RuntimeError: a connection would lose its gradients.
    """
    fits = isinstance(state, tuple) and count in (None, len(state))
    assert fits, "not a state of this family: call enter, and run every block in order"
    if isinstance(user, Connection) and not torch.is_grad_enabled() and all(each.requires_grad for each in state):
        raise RuntimeError(
            f"{type(user).__name__} got a state that requires gradients while gradients are off, so they would be "
            "lost: pass use_reentrant=False to checkpoint, or detached tensors if you need no gradients"
        )
    return state  # type: ignore[return-value]


def opened(*state: Tensor) -> State:
    """The first state of a family that passes on several tensors, for `enter`; detached if gradients are off."""
    return state if torch.is_grad_enabled() else tuple(each.detach() for each in state)
