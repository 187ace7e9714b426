"""The residual connections of a stack of layers, in one module."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from rskip.connections import (
    HOST_NEEDS,
    Connection,
    ConnectionSpec,
    Place,
    StackConnection,
    State,
    build_connection,
    build_norm,
    build_stack_connection,
    described_needs,
    parse_connection,
    read_supplies,
)
from rskip.connections.connection import HostNeed
from rskip.connections.hyper import StreamsConnection
from rskip.connections.norms import EPS, Normalisation
from rskip.nn.spec_record import SpecRecord
from rskip.settings.errors import SettingError, did_you_mean
from rskip.settings.kinds import MOST_LAYERS

# The allowed names of branches, each with the block position (Place.branch) that it stands for.
BRANCH_NAMES = {
    **dict.fromkeys(("attention", "attn", "self_attention", "self_attn", "mixer"), "self_attn"),
    **dict.fromkeys(("cross_attention", "cross_attn", "encoder_attn"), "encoder_attn"),
    **dict.fromkeys(("ffn", "mlp", "feed_forward", "moe"), "ffn"),
    "block": "block",
}
_TRANSFORMERS = (("self_attn", "ffn"), ("self_attn", "encoder_attn", "ffn"))
_UNSCALED = (
    "training starts with initial weights that were not scaled, although host_supplies names branch_gain: call "
    "scale_branch of each residual before training (docs/own_model.md); ignore this if you scale them yourself"
)


class Residual(nn.Module):
    """One residual connection. Calling it with a branch F returns the new state, after(kept, F(input)).

    Members: `connection`.
    """

    loaded = False  # whether a state was loaded since the initial values

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self.connection = connection

    if TYPE_CHECKING:  # nn.Module declares that a call returns Any

        def __call__(self, state: State, branch: Callable[..., Any], *args: Any, **kwargs: Any) -> State: ...

    def forward(self, state: State, branch: Callable[..., Any], *args: Any, **kwargs: Any) -> State:
        """Runs the branch and joins its output with the state.

        :param state: what `Residuals.enter` or the residual before this one returned.
        :param branch: a module or function F, called as `branch(input, *args, **kwargs)`. If it returns a tuple, such
            as an attention's output and weights, F(x) is the first value.
        """
        connection: Any = self._modules["connection"]  # Module.__getattr__ takes as long as an addition
        given, kept = connection.before(state)
        output = branch(given, *args, **kwargs)
        return connection.after(kept, output[0] if isinstance(output, tuple) else output)

    def before(self, state: State) -> tuple[Tensor, State]:
        """The branch's input, and the value to pass to `after`. Use both methods to get all outputs of your branch."""
        return self.connection.before(state)

    def after(self, kept: State, f: Tensor) -> State:
        """The state after the block, from what `before` kept and the branch's output f."""
        return self.connection.after(kept, f)

    def scale_branch(self, *parts: nn.Module | Tensor) -> None:
        """Multiplies initial weights by the connection's branch gain, which is 1 in most families.

        Call it once, after your own initialisation, and again after each new initialisation. Pass the value and output
        maps of an attention branch, and all maps of a feed-forward branch (Wang et al. 2022, section 4.2).

        :param parts: modules with a `weight`; parts of a weight, such as the rows that compute the values; or an
            nn.MultiheadAttention, which stands for its value and output maps.
        :raises ValueError: there is no weight; one is a copy or computed from others; or a state dict was loaded, which
            contains scaled weights.
        """
        weights = _weights_of(parts)
        if self.connection.branch_gain == 1:
            return
        if self.loaded:
            raise ValueError(
                "scale_branch was called after a state was loaded, which contains scaled weights: leave the call out; "
                "or, if you have initialised the branch again, call the residual's reset_parameters first"
            )
        with torch.no_grad():
            for weight in weights:
                weight.mul_(self.connection.branch_gain)
        _settle(self.connection)

    def reset_parameters(self, weight_init: Callable[[Tensor], object] | None = None) -> None:
        """Sets every parameter of the connection to its initial value, as in `Residuals.reset_parameters`."""
        self.connection.reset_parameters(*(() if weight_init is None else (weight_init,)))
        self.loaded = False

    def mark_loaded(self) -> None:
        """Says that the values come from a saved state, which contains scaled weights."""
        _settle(self.connection)
        self.loaded = True

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any) -> None:
        if any(key.startswith(prefix) for key in state_dict):
            self.mark_loaded()
        super()._load_from_state_dict(state_dict, prefix, *args)


class LayerResiduals(nn.Module):
    """The residual connections of one layer. Each is an attribute named after its branch."""

    def __init__(self, residuals: Mapping[str, Residual]) -> None:
        super().__init__()
        for name, residual in residuals.items():
            self.add_module(name, residual)

    def connections(self) -> list[Connection]:
        """The layer's connections, in order."""
        return [residual.connection for residual in self.children()]  # type: ignore[misc]

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Residual: ...


class Residuals(nn.Module):
    """All residual connections of a stack of layers, including what opens and closes the stack.

    The state starts as `enter(x)`, passes through every residual in order, and ends as the stack's output `leave(s)`::

        self.residuals = Residuals("mhc", 512, layers=12, branches=("attention", "ffn"))

        s = self.residuals.enter(x)
        for layer, residual in zip(self.layers, self.residuals):
            s = residual.attention(s, layer.attention, mask=mask)
            s = residual.ffn(s, layer.ffn)
        x = self.residuals.leave(s)

    The connections contain the normalisations, so your layers must not have any. Tensors are (..., C) with C features.
    Members: `layers.<i>.<branch>.connection`, `stack`, `closing_norm` if the family has one, and `spec_record`, which
    refuses a state dict that was saved with another connection.

    :param connection: connection string such as `2rskip+ln` (docs/connection_details.md), or a ConnectionSpec.
    :param features: C.
    :param layers: number of layers, at most 1,000.
    :param branches: names of each layer's branches, in order, out of BRANCH_NAMES. For other names pass a mapping from
        your name to one of these, such as {"convolution": "attention", "mlp": "ffn"}. A layer with parallel attention
        and feed-forward has one branch, "block".
    :param stack: "encoder" or "decoder"; None: "decoder" if there is cross-attention. A decoder without cross-attention
        is a decoder-only model.
    :param other_layers: number of layers in the other stack of an encoder-decoder; 0 for a model with one stack.
    :param eps: value that normalisations add to the variance.
    :param closing_norm: whether `leave` also applies the normalisation that closes a pre-norm stack. Pass False if your
        model has its own final normalisation.
    :param host_supplies: what your model does for connections that need more than x and F(x), out of HOST_NEEDS
        (`build_connection`).
    :param recompute: "streams": see `recompute_streams`.
    :raises SettingError: the connection, a branch's name or another argument is not valid, or the connection needs
        something from the model that `host_supplies` does not name.
    """

    def __init__(
        self,
        connection: str | ConnectionSpec,
        features: int,
        *,
        layers: int,
        branches: Sequence[str] | Mapping[str, str] = ("attention", "ffn"),
        stack: Literal["encoder", "decoder"] | None = None,
        other_layers: int = 0,
        eps: float = EPS,
        closing_norm: bool = True,
        host_supplies: HostNeed | Collection[HostNeed] = (),
        recompute: Literal["streams"] | None = None,
    ) -> None:
        super().__init__()
        spec = connection if isinstance(connection, ConnectionSpec) else parse_connection(connection)
        if not 1 <= layers <= MOST_LAYERS:
            raise SettingError.of_value("layers", layers, f"a whole number from 1 to {MOST_LAYERS}")
        positions = _read_branches(branches)
        side = _read_stack(stack, tuple(positions.values()))
        self.spec, self.features = spec, features
        self.spec_record = SpecRecord(str(spec))
        self.stack = build_stack_connection(spec, features, eps=eps)
        sublayers = layers * len(positions)
        places: list[dict[str, Place]] = [{} for _ in range(layers)]
        for number in range(sublayers):
            layer, (name, branch) = number // len(positions), list(positions.items())[number % len(positions)]
            kind = "network" if branch == "block" else side
            places[layer][name] = Place(kind, branch, number + 1, sublayers, layer + 1, layers, other_layers)
        self.layers = nn.ModuleList(build_layers(spec, features, places, eps=eps, host_supplies=host_supplies))
        self.closing_norm = None
        if closing_norm and spec.closing_norm is not None:
            self.closing_norm = build_norm(spec.closing_norm, features, eps=eps)
        recompute_streams(self, recompute)

    def enter(self, x: Tensor) -> State:
        """The first residual's state from the stack's input x (..., C).

        :raises TypeError: x is not a floating-point tensor, or only one of x and the parameters is float64.
        :raises ValueError: x has another number of features.
        """
        parameter = next(self.parameters(), x)
        if not x.is_floating_point() or (x.dtype == torch.float64) != (parameter.dtype == torch.float64):
            advice = "convert x, or the model with model.double() or model.float()"
            raise TypeError(f"x is {x.dtype}, but the connections' parameters are {parameter.dtype}: {advice}")
        if x.shape[-1:] != (self.features,):
            raise ValueError(f"x must have shape (..., {self.features}), with features last, not {tuple(x.shape)}")
        return self.stack.enter(x)

    def leave(self, state: State) -> Tensor:
        """The stack's output (..., C) from the last residual's state, normalised if the family closes its stacks."""
        x = self.stack.leave(state)
        return x if self.closing_norm is None else self.closing_norm(x)

    def __getitem__(self, layer: int) -> LayerResiduals:
        residuals = self.layers[layer]
        assert isinstance(residuals, LayerResiduals), "expected a layer's number"
        return residuals

    def __len__(self) -> int:
        return len(self.layers)

    def __iter__(self) -> Iterator[LayerResiduals]:
        return (self[layer] for layer in range(len(self)))

    def connections(self) -> Iterator[Connection]:
        """All connections, in the order in which the state passes through them."""
        return (connection for layer in self for connection in layer.connections())

    def reset_parameters(self, weight_init: Callable[[Tensor], object] | None = None) -> None:
        """Sets every parameter to its initial value. Call it after `to_empty`, or after your model's initialiser.

        :param weight_init: fills the weights of linear maps inside connections, such as gates; pass your model's own
            initialisation. None: they start as they were built, in most families by Xavier's uniform values.
        """
        for residual in (residual for layer in self for residual in layer.children()):
            residual.reset_parameters(weight_init)  # type: ignore[operator]
        self.stack.reset_parameters()
        if self.closing_norm is not None:
            self.closing_norm.reset_parameters()

    @property
    def no_weight_decay(self) -> frozenset[str]:
        """Names of the parameters without weight decay, as in `named_parameters()` of this module."""
        return no_weight_decay(self)

    def extra_repr(self) -> str:
        return f"{self.spec}, features={self.features}"


def no_weight_decay(model: nn.Module) -> frozenset[str]:
    """Names of a model's parameters without weight decay, as in `model.named_parameters()`.

    These are parameters of connections and of the normalisations that close their stacks. The model's other parameters
    are not named.

    :param model: a model with `Residuals`, or one that `adapt` changed.
    """
    names = set()
    for prefix, module in model.named_modules():
        if isinstance(module, (Connection, StackConnection)):
            found: Iterable[str] = module.no_weight_decay
        elif isinstance(module, Normalisation):  # one that closes a stack, or is part of a connection
            found = (name for name, _ in module.named_parameters())
        else:
            continue
        names |= {f"{prefix}.{name}" if prefix else name for name in found}
    return frozenset(names)


def recompute_streams(model: nn.Module, recompute: Literal["streams"] | None = "streams") -> None:
    """Has the backward pass compute most blocks' streams again, from their weights and their branches' outputs.

    Of a model with N blocks in a stack it keeps the streams before every √N-th (Xie et al. 2025, Eq. 20); no branch
    runs twice. It concerns `hyper`, `mhc` and `mhc_lite` where kernels compute them, and nothing else. Use it in place
    of activation checkpointing of whole layers, not within.

    :param model: a model with `Residuals`, or one that `adapt` changed.
    :param recompute: None: all streams are kept again.
    :raises SettingError: another value.
    """
    if recompute not in ("streams", None):
        raise SettingError.of_value("recompute", recompute, '"streams" or None')
    connections = [each for each in model.modules() if isinstance(each, StreamsConnection)]
    for each in connections:
        each.recomputed = math.isqrt(len(connections)) if recompute else 0


def build_layers(
    spec: ConnectionSpec,
    features: int,
    places: Sequence[Mapping[str, Place]],
    *,
    feature_dim: int = -1,
    eps: float | None = None,
    host_supplies: HostNeed | Collection[HostNeed] = (),
) -> list[LayerResiduals]:
    """The residual connections of each layer, at these places.

    :raises SettingError: the connection needs something from the model that `host_supplies` does not name.
    """

    def build(place: Place) -> Residual:
        settings: dict[str, Any] = {"feature_dim": feature_dim, "eps": eps, "host_supplies": HOST_NEEDS}
        return Residual(build_connection(spec, features, place=place, **settings))

    built = [LayerResiduals({name: build(place) for name, place in layer.items()}) for layer in places]
    connections = [each for layer in built for each in layer.connections()]
    branches = [tuple(place.branch for place in layer.values()) for layer in places]
    _check_needs(spec, connections, branches, host_supplies)
    for each in connections:
        if "branch_gain" in each.host_needs:
            each.register_forward_pre_hook(_warn_unscaled)
    *others, last = connections
    last.warns_unprofiled = last.needs_profile and bool(others)  # the first block's values may stay as they are
    return built


def _weights_of(parts: Sequence[nn.Module | Tensor]) -> list[Tensor]:
    """The weights that `scale_branch` scales."""
    weights: list[Tensor] = []
    for part in parts:
        if isinstance(part, nn.MultiheadAttention):
            joint = part.in_proj_weight
            weights += [part.v_proj_weight if joint is None else joint[2 * part.embed_dim :], part.out_proj.weight]
        else:
            weights.append(part if isinstance(part, Tensor) else part.get_parameter("weight"))
    if not weights or any(not weight.numel() for weight in weights):
        raise ValueError("scale_branch got no weights, or an empty one: expected linear maps or parts of their weights")
    for weight in weights:
        if (weight if weight._base is None else weight._base).grad_fn is not None:
            given = f"a copy of a weight, of shape {tuple(weight.shape)}, and scaling it changes nothing"
            advice = "pass the weight or a view of it, such as weight[start:end], before any reparametrisation"
            raise ValueError(f"scale_branch got {given}: {advice}")
    return weights


def _settle(connection: Connection) -> None:
    """Keeps the connection from warning, because its branch's weights are scaled or loaded."""
    hooks = connection._forward_pre_hooks
    for key in [key for key, hook in hooks.items() if hook is _warn_unscaled]:
        del hooks[key]


def _warn_unscaled(connection: Any, inputs: object) -> None:
    if connection.training and torch.is_grad_enabled() and not torch.compiler.is_compiling():
        _settle(connection)
        warnings.warn(_UNSCALED, stacklevel=2)


def _read_branches(branches: Sequence[str] | Mapping[str, str]) -> dict[str, str]:
    """The block position of each branch, by the branch's name."""
    named = branches if isinstance(branches, Mapping) else dict(zip(branches, branches, strict=True))
    if not named or len(named) != len(branches):
        raise SettingError.of_value("branches", branches, "at least one name, without duplicates")
    positions = {}
    for name, kind in named.items():
        if kind not in BRANCH_NAMES:
            known = f"{', '.join(BRANCH_NAMES)}{did_you_mean(kind, BRANCH_NAMES)}"
            mapping = f"or a mapping such as {{{name!r}: 'attention'}}"
            raise SettingError.of_value("branches", branches, f"names out of {known}, {mapping}")
        if not name.isidentifier() or hasattr(nn.Module(), name):
            raise SettingError.of_value("branches", name, "a valid attribute name for a torch.nn.Module")
        positions[name] = BRANCH_NAMES[kind]
    if "block" in positions.values() and set(positions.values()) != {"block"}:
        raise SettingError.of_value("branches", branches, "either only blocks, or a layer's branches without blocks")
    return positions


def _read_stack(stack: str | None, positions: tuple[str, ...]) -> str:
    crossed = "encoder_attn" in positions
    if stack is None:
        return "decoder" if crossed else "encoder"
    if stack not in ("encoder", "decoder"):
        raise SettingError.of_value("stack", stack, "encoder or decoder")
    if crossed and stack == "encoder":
        raise SettingError.of_value("stack", stack, "decoder, since the layers have cross-attention")
    return stack


def _check_needs(
    spec: ConnectionSpec,
    connections: Sequence[Connection],
    layers: Sequence[tuple[str, ...]],
    host_supplies: HostNeed | Collection[HostNeed],
) -> None:
    """Raises SettingError if the connections need something that neither the model nor this module supplies."""
    supplied = {"stack", *read_supplies(host_supplies)}
    needs = {need for connection in connections for need in connection.host_needs}
    if missing := [need for need in HOST_NEEDS if need in needs and need not in supplied]:
        listed = [need for need in HOST_NEEDS if need in needs and need != "stack"]
        how = f"pass host_supplies={listed} to Residuals or adapt (docs/own_model.md)"
        advice = f"do so and {how}, or choose another connection"
        expected = f"a model that is able to {described_needs(missing)}"
        raise SettingError.of_value("connection", str(spec), expected, advice=advice)
    if "inner_norms" in needs and not all(positions in _TRANSFORMERS for positions in layers):
        expected = "branches (attention, ffn) or (attention, cross_attention, ffn), as its formula requires"
        raise SettingError.of_value("connection", str(spec), expected)
