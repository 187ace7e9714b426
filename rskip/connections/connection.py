"""The interface of a residual connection."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal, get_args

import torch
from torch import Tensor, nn

from rskip.connections.gates import Gate
from rskip.connections.initial_values import SelfInitialised
from rskip.connections.mixing import Mixing
from rskip.connections.norms import Normalisation, check_features, under_autocast
from rskip.kernel_forms import GatedSum, NormalisedSum

State = Tensor | tuple[Tensor, ...]

# Positions inside a branch that can be normalised. In attention: each head's queries, keys and values, the joined heads
# before the output map, and that map's output. In a feed-forward branch: the hidden features before its last map.
InnerNorm = Literal["query", "key", "value", "heads", "output", "hidden"]
INNER_NORMS: tuple[InnerNorm, ...] = get_args(InnerNorm)

# What a connection may need from its model in addition to x and f; spec.py describes each need.
HostNeed = Literal["inner_norms", "scales_heads", "branch_gain", "profile", "stack"]
HOST_NEEDS: tuple[HostNeed, ...] = get_args(HostNeed)


class Connection(SelfInitialised):
    """Decides what a block's branch receives, and what the block passes to the next one, given the branch's output f.

    Every model calls two methods, `before` and `after`:

        given, kept = connection.before(state)
        state = connection.after(kept, branch(given))

    The state is x, or a tuple of tensors; the stack's `enter` returns the first one. It is a value: no module stores
    it, so activations can be recomputed and positions decoded one by one. Tensors are (B, T, C) with
    feature_dim=-1, (N, C, H, W) with feature_dim=1. Names of members are checkpoint API.

    Your own connection derives from this class, and `register_connection` gives it a name. In most families the state
    is x. Then the class implements `combine`, the formula of y in terms of x and f, and also `branch_input` if the
    branch's input isn't x itself. If blocks pass on more than x, it overrides `before` and `after`.
    """

    needs_profile = False  # whether a pass over data sets its initial values (see `admin_profiling`)
    warns_unprofiled = False  # whether its first training step warns if that pass did not run; `Residuals` sets it

    def __init__(self, features: int, *, feature_dim: int = -1) -> None:
        super().__init__()
        check_features(features, feature_dim)
        self.features = features
        self.feature_dim = feature_dim

    if TYPE_CHECKING:  # nn.Module declares that a call returns Any

        def __call__(self, x: Tensor, f: Tensor) -> Tensor: ...

    def before(self, state: State) -> tuple[Tensor, State]:
        """The branch's input, and the value to pass to `after`."""
        x = one_tensor(state, self)
        return self.branch_input(x), x

    def after(self, kept: State, f: Tensor) -> State:
        """The state after the block, from what `before` kept and the branch's output."""
        return self(one_tensor(kept, self), f)

    def branch_input(self, x: Tensor) -> Tensor:
        """The branch's input if the state is x: x itself, unless the connection normalises it first."""
        return x

    @property
    def passes_x(self) -> bool:
        """Whether blocks pass on only x, so that `branch_input` and `forward` can be called."""
        return passes_x(type(self))

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

    def as_norms(self) -> NormalisedSum | None:
        """The formula as sums and normalisations, for the compiled kernels; None if it has another form."""
        return None

    def as_gates(self) -> GatedSum | None:
        """The formula as gates, sums and a normalisation, for the compiled kernels; None if it has another form."""
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

        :raises TypeError: x, f or the result of `combine` is not a floating-point tensor, or only one of x and f is
            float64.
        :raises ValueError: x and f differ in shape or have another number of features, or `combine` changed the shape.
        """
        if not (isinstance(x, Tensor) and isinstance(f, Tensor) and x.dtype == f.dtype and x.is_floating_point()):
            _check_types(x, f)
        if x.shape != f.shape or x.dim() <= max(self.feature_dim, 0) or x.shape[self.feature_dim] != self.features:
            of_features = f"with {self.features} features along dimension {self.feature_dim}"
            if x.shape == f.shape:
                raise ValueError(f"x and f must have a shape {of_features}, not {tuple(x.shape)}")
            given = f"{tuple(x.shape)} and {tuple(f.shape)}"
            raise ValueError(f"x and f must have the same shape, {of_features}, not {given}")
        y = self.combine(x, f)
        check_floating(y, f"the result of {type(self).__name__}.combine")
        if y.shape != x.shape:
            shapes = f"{tuple(x.shape)}, not {tuple(y.shape)}"
            raise ValueError(f"{type(self).__name__}.combine must return a tensor of x's shape {shapes}")
        if y.dtype == x.dtype:
            return y
        return y.to(torch.promote_types(x.dtype, y.dtype) if under_autocast(x.device) else x.dtype)

    def of_features(self, values: Tensor, x: Tensor) -> Tensor:
        """`values` (C), one per feature, reshaped to broadcast with x."""
        return values.view(-1, *[1] * (x.dim() - 2)) if self.feature_dim == 1 else values

    def reset_parameters(self, weight_init: Callable[[Tensor], object] = nn.init.xavier_uniform_) -> None:
        """Sets every parameter to its initial value; `weight_init` fills the weights of gates' linear maps.

        In the papers these start like the model's other linear maps, so a model passes their initialisation here. A
        class with its own parameters overrides this method.
        """
        _warn_of_what_stays(self, Connection.reset_parameters)
        for module in self.modules():
            if isinstance(module, Gate):
                module.reset_parameters(weight_init)
            elif isinstance(module, Normalisation):
                module.reset_parameters()

    def extra_repr(self) -> str:
        return f"features={self.features}, feature_dim={self.feature_dim}"


def passes_x(kind: type[Connection]) -> bool:
    """Whether connections of this class pass on only x."""
    return not overrides(kind, "before", "after")


def overrides(kind: type[Connection], *names: str) -> bool:
    """Whether the class overrides any of these members of Connection."""
    return any(getattr(kind, name) is not getattr(Connection, name) for name in names)


class StackConnection(SelfInitialised):
    """Opens and closes a stack of blocks. This base class leaves input and output unchanged.

    A family may derive its own class. It is built once per stack, with the same settings as the family's connections.
    C is the number of features. Names of members are checkpoint API.
    """

    def enter(self, x: Tensor) -> State:
        """The first block's state from the stack's input x (..., C)."""
        return x

    def leave(self, state: State) -> Tensor:
        """The stack's output (..., C) from the last block's state, before a closing normalisation."""
        if type(self) is StackConnection and isinstance(state, tuple):
            problem = f"the stack's last state is {_shown_state(state)}, and its connection has no stack class"
            raise TypeError(f"{problem}: pass a class derived from StackConnection to register_connection as `stack`")
        return one_tensor(state, self)

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


def _without_decay(module: nn.Module) -> frozenset[str]:
    return frozenset(name for name, parameter in module.named_parameters() if parameter.dim() < 2)


def _warn_of_what_stays(module: Connection | StackConnection, inherited: object) -> None:
    """Warns if a class has its own parameters but inherits a reset_parameters that does not reset them."""
    own = [name for name, _ in module.named_parameters(recurse=False)]
    if own and type(module).reset_parameters is inherited:
        name = type(module).__name__
        advice = "define reset_parameters in the class: call super().reset_parameters and set the initial values"
        warnings.warn(f"{name}.reset_parameters does not reset {', '.join(own)}: {advice}", stacklevel=3)


def one_tensor(state: State, user: nn.Module) -> Tensor:
    """Checks the state of a family that passes on only x. Raises TypeError for another family's state."""
    if not isinstance(state, Tensor):
        raise TypeError(f"{type(user).__name__} expects one tensor as state, not {_shown_state(state)}")
    return state


def tensors(state: State, user: nn.Module, count: int | None = None) -> tuple[Tensor, ...]:
    """Checks the state of a family that passes on several tensors; `count` is their number, if known.

    :raises TypeError: the state belongs to another family, or is the stack's input itself.
    :raises RuntimeError: a connection would lose its gradients.
    """
    if not isinstance(state, tuple) or count not in (None, len(state)):
        several = f"a tuple of {count} tensors" if count else "a tuple of tensors"
        taken = f"{several} as state, such as its stack's enter(x) returns"
        advice = "; run every block of the stack, in order" if isinstance(state, tuple) else ""
        raise TypeError(f"{type(user).__name__} expects {taken}, not {_shown_state(state)}{advice}")
    if isinstance(user, Connection) and not torch.is_grad_enabled() and all(each.requires_grad for each in state):
        raise RuntimeError(
            f"{type(user).__name__} got a state that requires gradients while gradients are off, so they would be "
            "lost: pass use_reentrant=False to checkpoint, or detached tensors if you need no gradients"
        )
    return state


def check_floating(value: object, name: str) -> None:
    """Raises TypeError unless the value is a floating-point tensor."""
    if not (isinstance(value, Tensor) and value.is_floating_point()):
        given = value.dtype if isinstance(value, Tensor) else f"a {type(value).__name__}"
        raise TypeError(f"{name} must be a floating-point tensor, not {given}")


def check_output(f: Tensor, x: Tensor, user: Connection) -> None:
    """Checks the branch's output in families that pass on more than x.

    :param x: a tensor with the shape of the branch's input and the state's type.
    :raises TypeError: f is not a floating-point tensor, or only one of x and f is float64.
    :raises ValueError: f has another shape than x.
    """
    _check_types(x, f)
    if f.shape != x.shape:
        expected = f"the branch's output with the shape of its input, {tuple(x.shape)}"
        raise ValueError(f"{type(user).__name__} expects {expected}, not {tuple(f.shape)}")


def opened(*state: Tensor) -> State:
    """The first state of a family that passes on several tensors, for `enter`; detached if gradients are off."""
    return state if torch.is_grad_enabled() else tuple(each.detach() for each in state)


def _shown_state(state: object) -> str:
    if isinstance(state, Tensor):
        return f"one of shape {tuple(state.shape)}"
    return f"a tuple of {len(state)}" if isinstance(state, tuple) else f"a {type(state).__name__}"


def _check_types(x: object, f: object) -> None:
    """Raises TypeError unless x and f are floating-point tensors. Their types may differ, but not if one is float64."""
    check_floating(x, "x")
    check_floating(f, "f")
    assert isinstance(x, Tensor) and isinstance(f, Tensor)
    if (x.dtype == torch.float64) != (f.dtype == torch.float64):
        raise TypeError(f"x and f must have the same type if one is float64: x is {x.dtype}, f is {f.dtype}")
