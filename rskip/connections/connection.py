"""The interface of a residual connection."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import torch
from torch import Tensor, nn

from rskip.connections.gates import Gate
from rskip.connections.mixing import Mixing
from rskip.connections.norms import Normalisation, build_norm, under_autocast
from rskip.formulas.terms import InnerNorm, Settings
from rskip.kernel_forms import GatedSum, NormalisedSum

State = Tensor | tuple[Tensor, ...]

# What a connection may need from its model in addition to x and f; building.py describes each need.
HostNeed = Literal["inner_norms", "scales_heads", "branch_gain", "profile", "stack"]
HOST_NEEDS: tuple[HostNeed, ...] = get_args(HostNeed)


class Connection(nn.Module):
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

    These attributes of a class are properties of its family:

    - closing_norm: whether the spec's normalisation, if it has one, also closes a stack of such blocks. ("host",
      "prenorm") means only if the option host is prenorm.
    - text_only: whether features must come last though the state is x.
    - reads_earlier_layers: whether blocks also pass on the outputs of earlier layers.
    - stack: the class that opens and closes a stack.
    - only_with: options that work only with one value of another option, such as {"rank": ("form", "lr")}.
    """

    closing_norm: ClassVar[bool | tuple[str, object]] = False
    text_only: ClassVar[bool] = False
    reads_earlier_layers: ClassVar[bool] = False
    stack: ClassVar[type[StackConnection]]
    only_with: ClassVar[Mapping[str, tuple[str, object]]] = {}
    needs_profile = False  # whether a pass over data sets its initial values (see `admin_profiling`)
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

    @classmethod
    def check(cls, settings: Settings) -> str | None:
        """What a spec must be, if these settings contradict each other; otherwise None."""

    if TYPE_CHECKING:  # nn.Module declares that a call returns Any

        def __call__(self, x: Tensor, f: Tensor) -> Tensor: ...

    def before(self, state: State) -> tuple[Tensor, State]:
        """The branch's input, and the value to pass to `after`."""
        assert isinstance(state, Tensor), "the state of another family"
        return self.branch_input(state), state

    def after(self, kept: State, f: Tensor) -> State:
        """The state after the block, from what `before` kept and the branch's output."""
        assert isinstance(kept, Tensor)
        return self(kept, f)

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
    def branch_gain(self) -> float:
        """Factor for the initial values of the branch's value, output and feed-forward weights."""
        return 1.0

    @property
    def inner_norms(self) -> Mapping[InnerNorm, str]:
        """The normalisations (`ln`, `rms`) that a model must build inside the branch, by their position."""
        return {}

    @property
    def scales_heads(self) -> bool:
        """Whether a model must multiply each head's output by a learned factor that starts at 1."""
        return False

    @property
    def host_needs(self) -> tuple[HostNeed, ...]:
        """What the model must supply. Without it, this module computes or starts as a different connection."""
        asked: dict[HostNeed, bool] = {
            "inner_norms": bool(self.inner_norms),
            "scales_heads": self.scales_heads,
            "branch_gain": self.branch_gain != 1,
            "profile": self.needs_profile,
        }
        return tuple(need for need, wanted in asked.items() if wanted)

    @property
    def no_weight_decay(self) -> frozenset[str]:
        """Names of the parameters that take no weight decay: all with fewer than two dimensions.

        A class adds the names of small matrices that must not decay to 0 either, such as mixing weights.
        """
        return _without_decay(self)

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

    def reset_parameters(self, weight_init: Callable[[Tensor], object] = nn.init.xavier_uniform_) -> None:
        """Sets every parameter to its initial value; `weight_init` fills the weights of gates' linear maps.

        In the papers these start like the model's other linear maps, so a model passes their initialisation here. A
        class with its own parameters overrides this method, or `_initialise` if they need no `weight_init`.
        """
        if type(self)._initialise is Connection._initialise:
            _warn_of_what_stays(self, Connection.reset_parameters)
        for module in self.modules():
            if isinstance(module, Gate):
                module.reset_parameters(weight_init)
            elif isinstance(module, Normalisation):
                module.reset_parameters()
        self._initialise()

    def _initialise(self) -> None:
        """Sets the class's own parameters to their initial values."""

    def extra_repr(self) -> str:
        return f"{self.spec and self.spec + ', '}features={self.features}, feature_dim={self.feature_dim}"


class NormalisedInput(Connection):
    """Base class of connections with f = F(norm(x)), or F(x) without a norm. Members: `norm` (if given)."""

    def __init__(self, features: int, *, norm: str | None, feature_dim: int = -1) -> None:
        super().__init__(features, feature_dim=feature_dim)
        self.norm = None if norm is None else build_norm(norm, features, feature_dim)

    def branch_input(self, x: Tensor) -> Tensor:
        return x if self.norm is None else self.norm(x)


class StackConnection(nn.Module):
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

    @property
    def no_weight_decay(self) -> frozenset[str]:
        """Names of the parameters that take no weight decay, as in `Connection.no_weight_decay`."""
        return _without_decay(self)

    def reset_parameters(self) -> None:
        """Sets every parameter to its initial value. A class with its own parameters overrides this method."""
        _warn_of_what_stays(self, StackConnection.reset_parameters)
        for module in self.modules():
            if isinstance(module, Normalisation):
                module.reset_parameters()


Connection.stack = StackConnection


def _without_decay(module: nn.Module) -> frozenset[str]:
    return frozenset(name for name, parameter in module.named_parameters() if parameter.dim() < 2)


def _warn_of_what_stays(module: Connection | StackConnection, inherited: object) -> None:
    """Warns if a class has its own parameters but inherits a reset_parameters that does not reset them."""
    own = [name for name, _ in module.named_parameters(recurse=False)]
    if own and type(module).reset_parameters is inherited:
        name = type(module).__name__
        advice = "define reset_parameters in the class: call super().reset_parameters and set the initial values"
        warnings.warn(f"{name}.reset_parameters does not reset {', '.join(own)}: {advice}", stacklevel=3)


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
