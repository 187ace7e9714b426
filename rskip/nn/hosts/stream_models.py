"""Models of transformers that carry streams or attend over depth: their connection, and another in its place.

DeepSeek-V4, GLM-5.3, Hy4, Qwen4-Exp and Inkling 2 are told by the names of their layers' modules. In each layer a
module reads the streams before a branch, and the layer's code writes the branch's output into them. A replaced layer
keeps the library's code: the readers return the input of the branch from a connection, hooks take the branch's output,
and the state of the connections takes the place of the streams between layers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from rskip.connections import (
    Connection,
    ConnectionSpec,
    HostNeed,
    Place,
    State,
    build_norm,
    build_stack_connection,
    parse_connection,
)
from rskip.nn.adapted import AdaptedBlock, adapted_class, replaced
from rskip.nn.residuals import LayerResiduals, build_layers
from rskip.nn.spec_record import SpecRecord
from rskip.settings.errors import SettingError

Answer = Callable[[nn.Module, Tensor, tuple[Tensor, ...]], Any]


@dataclass(frozen=True)
class _Kind:
    """One form of these models.

    :param readers: names of the modules that read the streams, and `ends`, of those whose output a branch returns.
    :param norms: names of the normalisations between reader and branch, for each branch.
    :param head: name of the model's module that reads the last streams.
    :param answer: what the library's layer expects of a reader, from the reader, the branch's input and the inputs of
        keys and values, for one stream.
    :param wide: whether a layer gets (B, T, n, C), not (B, T, nC) or (B, T, C).
    """

    readers: tuple[str, str]
    ends: tuple[tuple[str, ...], tuple[str, ...]]
    norms: tuple[tuple[str, ...], tuple[str, ...]]
    head: str
    answer: Answer
    wide: bool = False


def _gates(reader: nn.Module, given: Tensor, inputs: tuple[Tensor, ...]) -> Any:
    """β and, if there are three scales, R, of one stream, which holds nothing."""
    ones = given.new_ones(*given.shape[:-1], 1)
    return (ones, ones.unsqueeze(-1), given) if reader.scales == 3 else (ones, given)


def _injection(reader: nn.Module, given: Tensor, inputs: tuple[Tensor, ...]) -> Any:
    return given, torch.zeros_like(given), given.new_ones(*given.shape[:-1], 1)


def _inputs(reader: nn.Module, given: Tensor, inputs: tuple[Tensor, ...]) -> Any:
    return given, *(inputs or (given, given))


_NORMS = (
    ("input_layernorm", "q_input_layernorm", "k_input_layernorm", "v_input_layernorm"),
    ("post_attention_layernorm",),
)
_KINDS = (
    _Kind(("attn_hc", "ffn_hc"), (("self_attn",), ("mlp",)), _NORMS, "hc_head", _gates, wide=True),
    _Kind(
        ("attn_hyper_connection", "mlp_hyper_connection"), (("linear_attn", "self_attn"), ("mlp",)), ((), ()),
        "hyper_connection_mixer", _injection,
    ),
    _Kind(
        ("attention_input", "mlp_input"), (("post_attention_convolution",), ("post_mlp_convolution",)), _NORMS,
        "final_input", _inputs,
    ),
)  # fmt: skip


@dataclass
class _Passage:
    """The way of one state through one call of a layer."""

    connections: list[Connection]
    state: State
    number: int = 0
    kept: Any = None


class Reader(nn.Module):
    """Takes the place of what read a layer's streams."""

    passage: _Passage | None = None

    def __init__(self, answer: Answer, scales: int) -> None:
        super().__init__()
        self.answer, self.scales = answer, scales

    def forward(self, *streams: Tensor) -> Any:
        passage = self.passage
        assert passage is not None
        if passage.number == 0 and streams[0].shape[-1] > passage.connections[0].features:  # with Qwen4's embeddings
            passage.state = streams[0].unflatten(-1, (-1, passage.connections[0].features))
        connection = passage.connections[passage.number]
        given, passage.kept = connection.before(passage.state)
        return self.answer(self, given, connection.key_value_inputs(passage.kept) or ())

    def note(self, module: nn.Module, args: Any, output: Any) -> None:
        """The hook of the branch's last module."""
        passage = self.passage
        if passage is not None:
            f = output[0] if isinstance(output, tuple) else output
            passage.state = passage.connections[passage.number].after(passage.kept, f)
            passage.number += 1


class StreamsBlock(AdaptedBlock):
    """The part of a replaced layer that its library does not have.

    Members: `residuals`, and in the first layer `spec_record`.
    """

    def forward(self, hidden_states: Any, *args: Any, **kwargs: Any) -> Any:
        kind: _Kind = self.__dict__["rskip_kind"]
        opening, connections = self.__dict__["rskip_opening"], self.residuals.connections()
        state: Any = tuple(hidden_states) if isinstance(hidden_states, list) else hidden_states
        if opening is not None:
            state = opening.enter(state[..., 0, :] if kind.wide else state[..., : connections[0].features])
        readers: list[Any] = [getattr(self, name) for name in kind.readers]
        passage = _Passage(connections, state)
        for reader in readers:
            reader.passage = passage
        streams = state[0] if isinstance(state, tuple) else state
        x = streams[..., 0, :] if streams.dim() == 4 else streams
        if getattr(self, "ple", None) is not None:
            x = streams.flatten(-2)  # to which the library adds
        output = super().forward(x.unsqueeze(-2) if kind.wide else x, *args, **kwargs)
        for reader in readers:
            reader.passage = None
        passed = list(passage.state) if isinstance(passage.state, tuple) else passage.state
        return replaced(output, 0 if isinstance(output, tuple) else None, passed)


class Exit(nn.Module):
    """Takes the place of what read the last streams. Members: `stack`, and `closing_norm` if the model has none."""

    def __init__(self, stack: nn.Module, closing_norm: nn.Module | None, *, several: bool) -> None:
        super().__init__()
        self.stack, self.closing_norm, self.several = stack, closing_norm, several

    def forward(self, *states: Any) -> Any:
        state = states[-1]
        x = self.stack.leave(tuple(state) if isinstance(state, list) else state)  # type: ignore[operator]
        x = x if self.closing_norm is None else self.closing_norm(x)
        return (x,) if self.several else x


@dataclass(frozen=True)
class StreamModel:
    """A model that carries streams: the module with `layers` and the head, its name, and its form."""

    model: Any
    name: str
    kind: _Kind

    @property
    def spec(self) -> ConnectionSpec:
        """Its connection."""
        model, config = self.model, self.model.config
        first, head = model.layers[0], getattr(model, self.kind.head)
        if self.kind.head == "hyper_connection_mixer":
            return parse_connection(f"gated_residual:streams={config.hc_count},rank={config.hc_lowrank}")
        if self.kind.head == "final_input":
            queries = 3 if any(map(_splits, model.layers)) else 1
            size = config.n_layers_per_attn_res_block
            return parse_connection(f"attnres+rms:layers={size},values=rms,queries={queries}")
        exit_ = "head" if any(True for _ in head.parameters()) else "mean"
        options = f"mhc+rms:streams={config.hc_mult},gate_eps={config.hc_eps},exit={exit_},start="
        if first.attn_hc.scale.numel() == 2:
            return parse_connection(f"{options}hy4,residual=identity,magnitude={config.hc_magnitude}")
        iterations = config.hc_sinkhorn_iters
        return parse_connection(f"{options}deepseek,iterations={iterations},sinkhorn_eps={config.hc_eps}")

    def replace(self, spec: ConnectionSpec, supplies: HostNeed | Collection[HostNeed]) -> None:
        """Puts the connection into the model, with the model's values if it is its own one."""
        model, kind, own = self.model, self.kind, _is(spec, self.spec)
        features, layers, eps = model.config.hidden_size, model.layers, model.config.rms_norm_eps
        carries = spec.family in ("hyper", "mhc", "mhc_lite", "gated_residual") and "reads" not in dict(spec.options)
        if not carries and any(getattr(layer, "ple", None) is not None for layer in layers):
            expected = f"a connection with streams, to which {type(layers[0]).__name__} adds embeddings"
            raise SettingError.of_value("connection", str(spec), expected)
        like = next(model.parameters())
        residuals = [
            self._residuals(spec, number, supplies).to(like.device, like.dtype) for number in range(len(layers))
        ]
        head, final, closing = getattr(model, kind.head), getattr(model, "norm", None), None
        stack = build_stack_connection(spec, features, eps=eps).to(like.device, like.dtype)
        if own:
            _take(stack, head)
        if spec.closing_norm != (None if final is None else "rms"):
            if spec.closing_norm is not None:
                closing = build_norm(spec.closing_norm, features, eps=eps).to(like.device, like.dtype)
            if final is not None:
                model.norm = nn.Identity()
        setattr(model, kind.head, Exit(stack, closing, several=kind.answer is _inputs))
        layers[0].spec_record = SpecRecord(str(spec)).to(like.device)
        for number, (layer, connections) in enumerate(zip(layers, residuals, strict=True)):
            places = zip(connections.connections(), kind.readers, kind.norms, kind.ends, strict=True)
            for connection, name, norms, ends in places:
                former = getattr(layer, name)
                _take_norms(layer, norms, connection, spec)
                if own and former is not None:
                    _take(connection, former)
                reader = Reader(kind.answer, getattr(former, "scale", torch.empty(0)).numel())
                setattr(layer, name, reader)
                end = next(getattr(layer, each) for each in ends if hasattr(layer, each))
                end.register_forward_hook(reader.note)
            layer.residuals = connections
            layer.is_block_boundary = False  # Inkling 2's model would keep the state as a block
            layer.__class__ = adapted_class(type(layer), (), StreamsBlock)  # type: ignore[arg-type]
            layer.__dict__["rskip_kind"] = kind
            layer.__dict__["rskip_opening"] = stack if number == 0 else None
            layer.__dict__["rskip_closing"] = stack if number == len(layers) - 1 else None

    def _residuals(self, spec: ConnectionSpec, number: int, supplies: Any) -> LayerResiduals:
        layers, config = self.model.layers, self.model.config
        if _splits(layers[number]):
            supplies = [*([supplies] if isinstance(supplies, str) else supplies), "splits_inputs"]
        elif any(map(_splits, layers)):
            spec = replace(spec, options=tuple(each for each in spec.options if each[0] != "queries"))
        count = len(layers)
        places = {
            name: Place("decoder", branch, 2 * number + offset, 2 * count, number + 1, count)
            for offset, (name, branch) in enumerate((("attention", "self_attn"), ("ffn", "ffn")), start=1)
        }
        (built,) = build_layers(spec, config.hidden_size, [places], eps=config.rms_norm_eps, host_supplies=supplies)
        return built


def _is(spec: ConnectionSpec, own: ConnectionSpec) -> bool:
    """Whether the two differ in initial values only."""
    first, second = (replace(each, options=tuple(o for o in each.options if o[0] != "start")) for each in (spec, own))
    return first == second


def _take(connection: Any, former: Any) -> None:
    """Gives a connection, or what closes a stack, the values of the library's module."""
    prefix = "hc_" if hasattr(former, "hc_fn") else ""
    if hasattr(former, f"{prefix}fn"):
        for name, theirs in (("mixing", "fn"), ("bias", "base"), ("scale", "scale")):
            setattr(connection, name, getattr(former, prefix + theirs))
    elif hasattr(former, "query"):  # the library divides scores by √C
        query, attention = former.query, connection.attention
        attention.norm.eps = former.norm.eps
        attention.query = nn.Parameter(query.detach() / query.size(-1) ** 0.5, requires_grad=query.requires_grad)
    elif hasattr(former, "hc_norm"):  # its gain is 1 + weight
        gain, reading = former.hc_norm.weight, connection.reading
        reading.gain = nn.Parameter(1 + gain.detach(), requires_grad=gain.requires_grad)
        reading.down.weight, reading.up.weight = former.input_mix_weight_down.weight, former.input_mix_weight_up.weight
        if former.block_inject_weight is not None:
            connection.inject.weight = former.block_inject_weight.weight


def _splits(layer: nn.Module) -> bool:
    return hasattr(layer, "k_input_layernorm")


def _take_norms(layer: nn.Module, names: tuple[str, ...], connection: Connection, spec: ConnectionSpec) -> None:
    """Moves the library's normalisations of a branch into a connection with RMS, and removes them."""
    found = [(name, getattr(layer, name)) for name in names if hasattr(layer, name)]
    members = ("norm", "key_norm", "value_norm") if connection.splits_inputs else ("norm",)
    if connection.input_slot and spec.norm == "rms":
        for member, (_, norm) in zip(members, found, strict=False):
            connection.get_submodule(member).weight = norm.weight
    for name, _ in found:
        setattr(layer, name, nn.Identity())


def stream_models(model: nn.Module) -> Iterator[StreamModel]:
    """The model's parts that carry streams."""
    for name, module in model.named_modules():
        layers = module._modules.get("layers")
        if not isinstance(layers, nn.ModuleList) or not len(layers):
            continue
        for kind in _KINDS:
            if kind.head in module._modules and all(hasattr(layers[0], reader) for reader in kind.readers):
                yield StreamModel(module, name, kind)


def own_specs(model: nn.Module) -> Mapping[str, str]:
    """The connection of each part of the model that carries streams, by the part's name."""
    return {each.name: str(each.spec) for each in stream_models(model)}
