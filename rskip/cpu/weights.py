"""A Transformer's stacks from the weights of a file, for programs of kernels. It needs NumPy, but no PyTorch.

The stacks have the members of `rskip.transformer`'s modules that `rskip.cpu.program` reads. Members that a stack of
kernels never has are None.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from threading import Lock
from types import SimpleNamespace
from typing import Any, NamedTuple, Protocol

import numpy as np

from rskip.cpu.library import Library
from rskip.cpu.packing import FEWEST_INT8_WEIGHTS, PackedMap, PackedMap8, PackedTable, quantised
from rskip.formulas import UnknownFamily, find_family, parse_connection, terms
from rskip.formulas.kernels import kernel_form
from rskip.formulas.place import BRANCHES, Place
from rskip.kernel_forms import GatedSum, NoKernelForm, NormalisedSum
from rskip.settings.errors import SettingError
from rskip.transformer.config import TransformerConfig

_EPS = 1e-5
_FIRST_POSITIONS = 256
_ROUNDED_AT_ONCE = 2**16  # number of values
_growing = Lock()


def _unfit(problem: str) -> SettingError:
    return SettingError("", problem, advice="get the weights and config.json again, both from one model")


class Norm(NamedTuple):
    """Layer normalisation with weight (C) and bias (C), or without bias a division by the root mean square."""

    weight: np.ndarray
    bias: np.ndarray | None
    eps: float


class Positions:
    """A table of positions (P, C): sine and cosine, which grows, or learned. See `rskip.transformer.positions`.

    :param as_rows: converts float32 values to the rows' type; None: the positions are learned.
    """

    def __init__(self, rows: np.ndarray, padding: int, as_rows: Callable[[np.ndarray], Any] | None) -> None:
        self.rows, self._padding, self._as_rows = rows, padding, as_rows

    def grow(self, length: int) -> None:
        """Enlarges the table for sentences of `length` tokens. Raises ValueError if its positions are learned."""
        needed = length + self._padding + 1
        if needed <= len(self.rows):
            return
        if self._as_rows is None:
            raise ValueError(
                f"a sentence has {length} tokens, but this model has only {len(self.rows) - self._padding - 1} learned "
                "positions: split or shorten the sentence"
            )
        with _growing:
            if needed > len(self.rows):
                rows = _waves(max(needed, 2 * len(self.rows)), self.rows.shape[1], self._padding)
                self.rows = self._as_rows(rows)


def _waves(length: int, features: int, padding: int) -> np.ndarray:
    """The table of `rskip.transformer.positions.SinusoidalPositions`, whose frequencies and angles are in float32."""
    half = features // 2
    powers = np.arange(half, dtype=np.float32) * np.float32(-(math.log(10000) / max(half - 1, 1)))
    frequencies = np.exp(powers.astype(np.float64)).astype(np.float32)
    angles = (np.arange(length, dtype=np.float32)[:, None] * frequencies).astype(np.float64)
    table = np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)
    table[padding] = 0
    return table


def to_bfloat16(values: np.ndarray) -> np.ndarray:
    """float32 values rounded to the nearest bfloat16, as 16-bit integers."""
    given = np.ascontiguousarray(values, np.float32).reshape(-1)
    rounded = np.empty(given.shape, np.uint16)
    for first in range(0, len(given), _ROUNDED_AT_ONCE):
        part = slice(first, first + _ROUNDED_AT_ONCE)
        bits = given[part].view(np.uint32)
        rounded[part] = np.where(np.isnan(given[part]), 0x7FC0, (bits + (0x7FFF + (bits >> 16 & 1))) >> 16)
    return rounded.reshape(values.shape)


class Parameters(Protocol):
    """The parameters of a model in a file, by the names of `Transformer`'s parameters."""

    shapes: dict[str, tuple[int, ...]]

    def stored(self, name: str) -> str:
        """The name under which the parameter is stored; tied ones share one."""

    def read(self, name: str) -> np.ndarray:
        """The parameter in float32."""

    def fingerprint(self) -> str:
        """A checksum of all parameters that were read."""


class Weights:
    """The parameters of a model by name, each read once and released as soon as it is packed.

    :param precision: number format of the computation: "float32", "bfloat16" or "int8".
    """

    def __init__(self, library: Library, parameters: Parameters, precision: str) -> None:
        self.library, self._parameters, self.precision = library, parameters, precision
        self._left = set(parameters.shapes)
        self._same: dict[str, str] = {}  # names of matrices that are stored twice
        self._tables: dict[str, np.ndarray | PackedTable] = {}  # embeddings by the name under which they are stored

    def values(self, name: str, *shape: int | None) -> np.ndarray:
        """The parameter in the rows' type.

        :param shape: the expected sizes; None: any.
        :raises SettingError: it is missing, has another shape, or values that are infinite or NaN.
        """
        return self._as_rows(self._take(name, shape))

    def table(self, name: str, features: int) -> np.ndarray | PackedTable:
        """An embedding (V, C) in the rows' type. Tied ones are one array."""
        self._check_shape(name, (None, features))
        stored = self._stored(name)
        if stored not in self._tables:
            self._tables[stored] = self.values(name, None, features)
        return self._tables[stored]

    def tied(self, name: str, inputs: int, outputs: int, *, has_bias: bool) -> PackedMap | PackedMap8:
        """Like `linear`, for a weight that is also an embedding."""
        linear = self.linear(name, inputs, outputs, has_bias=has_bias)
        if self.precision == "float32":
            assert isinstance(linear, PackedMap)
            self._tables[self._stored(f"{name}.weight")] = PackedTable(linear)
        return linear

    def share(self, name: str, table: str) -> None:
        """Lets the parameter be the embedding `table`, as the settings say.

        :raises SettingError: the file has another matrix for it.
        """
        stored, own = self._stored(table), self._stored(name)
        if name in self._parameters.shapes and own != stored:
            if not np.array_equal(self._parameters.read(name), self._parameters.read(table)):
                raise _unfit(f"{name} and {table} differ, but the settings say that they are one matrix")
            self._same[own] = stored

    def numbers(self, name: str, *shape: int | None) -> np.ndarray:
        """The parameter in float32, after rounding to the rows' type."""
        values = self.values(name, *shape)
        return (values.astype(np.uint32) << 16).view(np.float32) if values.dtype == np.uint16 else values

    def positions(self, name: str, learned: int | None, features: int, padding: int) -> Positions:
        """The table of positions. `learned`: their number if they are learned."""
        if learned is not None:
            return Positions(self.values(f"{name}.weight", learned + padding + 1, features), padding, None)
        return Positions(self._as_rows(_waves(_FIRST_POSITIONS, features, padding)), padding, self._as_rows)

    def linear(self, name: str, inputs: int, outputs: int, *, has_bias: bool = True) -> PackedMap | PackedMap8:
        """The linear map with these members `weight` and `bias`."""
        weight = self._take(f"{name}.weight", (outputs, inputs))
        bias = self._take(f"{name}.bias", (outputs,)) if has_bias else None
        if self.precision == "int8" and weight.size >= FEWEST_INT8_WEIGHTS:
            return PackedMap8(self.library, *quantised(weight, self.library.largest_weight), bias)
        return PackedMap(self.library, self._as_rows(weight), None if bias is None else self._as_rows(bias))

    def norm(self, name: str, kind: str, features: int) -> Norm:
        """The normalisation of this kind, ln or rms."""
        bias = self.values(f"{name}.bias", features) if kind == "ln" else None
        return Norm(self.values(f"{name}.weight", features), bias, _EPS)

    def check_all_taken(self) -> None:
        """Raises SettingError if a parameter was not taken, so that no part of a model is ignored."""
        if self._left:
            raise _unfit(f"the weights have {min(self._left)}, which the settings lack")

    def _stored(self, name: str) -> str:
        stored = self._parameters.stored(name)
        return self._same.get(stored, stored)

    def _take(self, name: str, shape: tuple[int | None, ...]) -> np.ndarray:
        self._check_shape(name, shape)
        values = self._parameters.read(name)
        with np.errstate(over="ignore", invalid="ignore"):
            total = values.sum()
        if not (np.isfinite(total) or np.isfinite(values).all()):
            problem = f"{name} has values that are infinite or not numbers (NaN)"
            raise SettingError("", problem, advice="the file is damaged or its training diverged: get another")
        return values

    def _check_shape(self, name: str, shape: tuple[int | None, ...]) -> None:
        """Checks that the file has the parameter in this shape, and marks it as taken."""
        found = self._parameters.shapes.get(name)
        fits = found is not None and len(found) == len(shape)
        if not fits or any(size not in (None, own) for size, own in zip(shape, found or (), strict=True)):
            expected = tuple("any" if size is None else size for size in shape)
            given = f"lack {name}" if found is None else f"have {name} in the shape {found}"
            raise _unfit(f"the weights {given}, but the settings describe {expected}")
        self._left.discard(name)

    def _as_rows(self, values: np.ndarray) -> np.ndarray:
        return to_bfloat16(values) if self.precision == "bfloat16" else values


class Connections:
    """Builds the forms of one stack's connections."""

    def __init__(self, weights: Weights, config: TransformerConfig, side: str) -> None:
        self.weights, self.config, self.side = weights, config, side
        self.features: int = getattr(config, f"{side}_embed_dim")
        self.spec = parse_connection(getattr(config, f"{side}_connection"))
        self.closing_norm = self.spec.closing_norm

    def form(self, layer: int, member: str) -> NormalisedSum | GatedSum:
        """The layer's connection with this name, such as `ffn_connection`.

        :raises NoKernelForm: only PyTorch can build it.
        """
        family, settings = find_family(self.spec.family), self.spec.settings
        name = f"{self.side}.layers.{layer}.{member}"
        if family.needs_place:
            settings["place"] = self._place(layer, member.removesuffix("_connection"))
        formula = family.connection(**settings) if family.is_formula else None
        if formula is not None and not (formula.inner_norms or formula.scales_heads or formula.stack):
            stated = kernel_form(formula, lambda term: self._value(name, term))
            if stated is not None:
                return stated
        raise NoKernelForm(f"the connection {str(self.spec)!r} needs PyTorch")

    def _place(self, layer: int, branch: str) -> Place:
        branches, side = BRANCHES[self.side], self.side
        sublayer = layer * len(branches) + branches.index(branch) + 1
        of_encoder, of_decoder = self.config.encoder_layers, self.config.decoder_layers
        layers, others = (of_encoder, of_decoder) if side == "encoder" else (of_decoder, of_encoder)
        return Place(side, branch, sublayer, layers * len(branches), layer + 1, layers, others)

    def _value(self, connection: str, term: Any) -> Any:
        """The number or the arrays of a term or factor."""
        if isinstance(term, (int, float)):
            return float(term)
        if isinstance(term, terms.Number):
            return float(term.value)
        name, features = f"{connection}.{term.name}", self.features
        if isinstance(term, terms.Norm):
            return self.weights.norm(name, term.kind, features)
        if isinstance(term, terms.Map):
            inputs = term.of.outputs if isinstance(term.of, terms.Map) else None
            return self.weights.linear(name, inputs or features, term.outputs or features, has_bias=False)
        if isinstance(term, terms.Gate):
            inputs, outputs = len(term.over) * features, 1 if term.scalar else features
            hidden = self.weights.linear(f"{name}.hidden", inputs, features) if term.hidden else None
            output = self.weights.linear(f"{name}.output", features if term.hidden else inputs, outputs)
            return SimpleNamespace(hidden=hidden, output=output)
        if isinstance(term, terms.Mixture) or term.bound != "none" or term.rate != 1:
            raise NoKernelForm(f"the connection {str(self.spec)!r} needs PyTorch")
        size = term.size or features
        numbers = self.weights.numbers(name, size)
        return numbers if size == 1 else np.repeat(numbers, features // size)


def read_stacks(
    library: Library, settings: Mapping[str, Any], parameters: Parameters, precision: str
) -> tuple[TransformerConfig, Any, Any]:  # fmt: skip
    """The configuration, the encoder and the decoder of a Transformer.

    :param settings: those of `TransformerConfig`, apart from the vocabularies; the others are its defaults.
    :param precision: "float32", "bfloat16" or "int8".
    :raises NoKernelForm: the kernels can't compute the model.
    :raises SettingError: a setting has a wrong type or range, or the weights don't fit the settings.
    """
    config = _config(settings, parameters)
    if config.value_residual != "none":
        raise NoKernelForm(f"the kernels don't compute value_residual={config.value_residual}")
    weights = Weights(library, parameters, precision)
    projection, table = "decoder.output_projection", "decoder.embed_tokens.weight"
    if config.output_is_embedding:
        weights.share(f"{projection}.weight", table)
    if config.share_all_embeddings:
        weights.share("encoder.embed_tokens.weight", table)
    project = weights.tied if config.output_is_embedding else weights.linear
    words = parameters.shapes[table][0]
    output = project(projection, config.decoder_embed_dim, words, has_bias=config.output_has_bias)
    encoder = _stack(weights, config, "encoder", config.encoder_learned_pos, config.max_source_positions)
    decoder = _stack(weights, config, "decoder", config.decoder_learned_pos, config.max_target_positions)
    decoder.output_projection, decoder.project = output, None
    weights.check_all_taken()
    return config, encoder, decoder


def _config(settings: Mapping[str, Any], parameters: Parameters) -> TransformerConfig:
    source, target = (parameters.shapes[f"{side}.embed_tokens.weight"][0] for side in ("encoder", "decoder"))
    values = {field.name: settings.get(field.name) for field in fields(TransformerConfig)}
    values |= {"source_vocabulary": source, "target_vocabulary": target, "padding_index": 1}
    try:
        return TransformerConfig(**{name: value for name, value in values.items() if value is not None})
    except SettingError as error:
        if isinstance(error.__context__, UnknownFamily):  # your own, whose module may be imported with PyTorch
            raise NoKernelForm(f"the connection {values[error.name]!r} needs PyTorch") from None
        raise


def _stack(weights: Weights, config: Any, side: str, learned: bool, length: int) -> Any:
    features: int = getattr(config, f"{side}_embed_dim")
    layers: int = getattr(config, f"{side}_layers")
    connections = Connections(weights, config, side)
    table, positions = weights.table(f"{side}.embed_tokens.weight", features), None
    if not config.no_token_positional_embeddings:
        name = f"{side}.embed_positions"
        positions = weights.positions(name, length if learned else None, features, config.padding_index)
    embedding_norm = "ln" if config.layernorm_embedding else None
    norms = {"layernorm_embedding": embedding_norm, "layer_norm": connections.closing_norm}
    return SimpleNamespace(
        config=config, embed_tokens=SimpleNamespace(weight=table), embed_positions=positions, stack_connection=None,
        embed_scale=1.0 if config.no_scale_embedding else math.sqrt(features),
        layers=[_layer(weights, config, side, number, connections) for number in range(layers)],
        **{name: weights.norm(f"{side}.{name}", kind, features) if kind else None for name, kind in norms.items()},
    )  # fmt: skip


def _layer(weights: Weights, config: Any, side: str, number: int, connections: Connections) -> Any:
    name = f"{side}.layers.{number}"
    features, inner = connections.features, getattr(config, f"{side}_ffn_embed_dim")
    heads = getattr(config, f"{side}_attention_heads")
    layer = SimpleNamespace(
        self_attn=_attention(weights, f"{name}.self_attn", features, features, heads),
        self_attn_connection=connections.form(number, "self_attn_connection"),
        fc1=weights.linear(f"{name}.fc1", features, inner),
        fc2=weights.linear(f"{name}.fc2", inner, features),
        ffn_connection=connections.form(number, "ffn_connection"),
        activation=config.activation_fn,
        hidden_norm=None,
    )
    if side == "decoder":
        memory = config.encoder_embed_dim
        layer.encoder_attn = _attention(weights, f"{name}.encoder_attn", features, memory, heads)
        layer.encoder_attn_connection = connections.form(number, "encoder_attn_connection")
    return layer


def _attention(weights: Weights, name: str, features: int, memory: int, heads: int) -> Any:
    inputs = {"q_proj": features, "k_proj": memory, "v_proj": memory, "out_proj": features}
    maps = {each: weights.linear(f"{name}.{each}", size, features) for each, size in inputs.items()}
    nothing = dict.fromkeys(
        ("query_norm", "key_norm", "value_norm", "heads_norm", "output_norm", "head_scale", "value_residual")
    )
    return SimpleNamespace(heads=heads, **maps, **nothing)
