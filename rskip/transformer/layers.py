"""The layers of all stacks: branches and their residual connections.

A State passes from branch to branch: the tensor x, or the several tensors that the connections pass on.

B batch, T target length, S source length, H heads, C features. Member names are checkpoint API: fairseq's for the parts
that fairseq has too, and `<branch>_connection` for a branch's connection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from rskip.connections import HOST_NEEDS, Connection, Place, State, build_connection
from rskip.connections.linear import Linear
from rskip.formulas.place import BRANCHES
from rskip.transformer.attention import KeyValue, MultiHeadAttention, build_inner_norm
from rskip.transformer.config import DecoderConfig, LanguageModelConfig, StackConfig
from rskip.transformer.dropout import Dropout
from rskip.transformer.rotary import Rotation
from rskip.transformer.state import LayerCache
from rskip.transformer.value_residual import FirstValues, build_value_residual


def _tanh_gelu(x: Tensor) -> Tensor:
    return functional.gelu(x, approximate="tanh")


def _identity(x: Tensor) -> Tensor:
    return x


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "gelu": functional.gelu,
    "gelu_accurate": _tanh_gelu,
    "gelu_fast": _tanh_gelu,
    "tanh": torch.tanh,
    "linear": _identity,
    "swish": functional.silu,
}


class TransformerLayer(nn.Module):
    """Base of all layers: self-attention and a feed-forward branch.

    :param places: the positions of its blocks, by their branches; their stack's sizes are those of the layer.
    :param gated: multiply the hidden features by a third linear map of the branch's input, `fc3`.
    """

    def __init__(
        self,
        config: DecoderConfig,
        places: Mapping[str, Place],
        *,
        key_value_heads: int | None = None,
        gated: bool = False,
    ) -> None:
        super().__init__()
        names = ("embed_dim", "ffn_embed_dim", "attention_heads", "connection")
        stack = places["self_attn"].stack
        features, inner_features, heads, connection = (getattr(config, f"{stack}_{name}") for name in names)
        self.self_attn = MultiHeadAttention(
            features, heads, key_value_heads=key_value_heads, dropout=config.attention_dropout
        )
        self.self_attn_connection = _build_connection(connection, features, places["self_attn"])
        self.fc1 = Linear(features, inner_features)
        self.fc2 = Linear(inner_features, features)
        self.fc3 = Linear(features, inner_features) if gated else None
        self.ffn_connection = _build_connection(connection, features, places["ffn"])
        self.self_attn.build_inside(self.self_attn_connection)
        self.self_attn.value_residual = build_value_residual(config.value_residual, places["self_attn"].layer)
        self.hidden_norm = build_inner_norm(self.ffn_connection, "hidden", inner_features)
        scale_branch(self.self_attn_connection, self.self_attn.v_proj, self.self_attn.out_proj)
        scale_branch(self.ffn_connection, self.fc1, self.fc2, *([] if self.fc3 is None else [self.fc3]))
        self.activation = ACTIVATIONS[config.activation_fn]
        self.dropout = Dropout(config.dropout)
        self.activation_dropout = Dropout(config.activation_dropout)

    def _project(
        self, x: Tensor, kept: State, first: FirstValues | None, rotation: Rotation | None = None
    ) -> KeyValue:
        """Self-attention's keys and values."""
        key_input, value_input = self.self_attn_connection.key_value_inputs(kept) or (x, None)
        return self.self_attn.project(key_input, first, rotation, value_input)

    def feed_forward(self, passed: State) -> State:
        """The feed-forward branch and its connection."""
        x, kept = self.ffn_connection.before(passed)
        inner = self.activation(self.fc1(x))
        if self.fc3 is not None:
            inner = inner * self.fc3(x)
        inner = self.activation_dropout(inner)
        if self.hidden_norm is not None:
            inner = self.hidden_norm(inner)
        return self.ffn_connection.after(kept, self.dropout(self.fc2(inner)))


class EncoderLayer(TransformerLayer):
    """Self-attention, then feed-forward."""

    def __init__(self, config: StackConfig, number: int) -> None:
        """The layer of this number, from 1."""
        super().__init__(config, _places("encoder", number, config.encoder_layers, config.decoder_layers))

    def forward(self, passed: State, mask: Tensor | None, first: FirstValues | None = None) -> State:
        """Runs the layer on a state of tensors (B, S, C). `mask` (B, 1, 1, S) is added to the scores, unless None."""
        x, kept = self.self_attn_connection.before(passed)
        attended = self.self_attn(x, self._project(x, kept, first), mask)
        return self.feed_forward(self.self_attn_connection.after(kept, self.dropout(attended)))


class DecoderLayer(TransformerLayer):
    """Self-attention, cross-attention to the encoder's memory, then feed-forward."""

    def __init__(self, config: StackConfig, number: int) -> None:
        """The layer of this number, from 1."""
        places = _places("decoder", number, config.decoder_layers, config.encoder_layers)
        super().__init__(config, places)
        self.encoder_attn = MultiHeadAttention(
            config.decoder_embed_dim,
            config.decoder_attention_heads,
            memory_features=config.encoder_embed_dim,
            dropout=config.attention_dropout,
        )
        self.encoder_attn_connection = _build_connection(
            config.decoder_connection, config.decoder_embed_dim, places["encoder_attn"]
        )
        self.encoder_attn.build_inside(self.encoder_attn_connection)
        scale_branch(self.encoder_attn_connection, self.encoder_attn.v_proj, self.encoder_attn.out_proj)

    def forward(
        self,
        passed: State,
        memory: Tensor | None,
        memory_mask: Tensor | None,
        mask: Tensor | None,
        first: FirstValues | None = None,
        cache: LayerCache | None = None,
    ) -> State:
        """Runs the layer on a state of tensors (B, T, C), with memory (B, S, C). `mask` None means causal.

        With a cache, T is K: the next position of each beam, which is appended to the cache. The cache also contains
        the memory's keys and values.
        """
        x, kept = self.self_attn_connection.before(passed)
        own = self._project(x, kept, first)
        target = own if cache is None else cache.extend(own)
        attended = self.self_attn(x, target, mask, causal=mask is None)
        passed = self.self_attn_connection.after(kept, self.dropout(attended))
        x, kept = self.encoder_attn_connection.before(passed)
        if cache is None:
            assert memory is not None
            source = self.encoder_attn.project(memory)
        else:
            assert cache.memory is not None
            source = cache.memory
            if cache.wants_attention:
                cache.attention = self.encoder_attn.weights(x, source, memory_mask)
        attended = self.encoder_attn(x, source, memory_mask)
        return self.feed_forward(self.encoder_attn_connection.after(kept, self.dropout(attended)))


class LanguageModelLayer(TransformerLayer):
    """Causal self-attention, then feed-forward."""

    def __init__(self, config: LanguageModelConfig, number: int) -> None:
        """The layer of this number, from 1."""
        places = _places("decoder", number, config.decoder_layers, 0)
        super().__init__(config, places, key_value_heads=config.key_value_heads, gated=config.gated_ffn)

    def forward(
        self,
        passed: State,
        mask: Tensor | None,
        rotation: Rotation | None,
        first: FirstValues | None = None,
        cache: LayerCache | None = None,
    ) -> State:
        """Runs the layer on a state of tensors (B, T, C). `mask` None means causal.

        With a cache, the positions are appended to it: a whole prompt (`mask` is causal), or the next position of each
        beam.
        """
        x, kept = self.self_attn_connection.before(passed)
        own = self._project(x, kept, first, rotation)
        target = own if cache is None else cache.extend(own)
        attended = self.self_attn(x, target, mask, rotation, causal=mask is None)
        return self.feed_forward(self.self_attn_connection.after(kept, self.dropout(attended)))


def _places(stack: str, layer: int, layers: int, other_layers: int) -> dict[str, Place]:
    """The positions of the layer's blocks. A decoder without another stack has no cross-attention."""
    branches = [branch for branch in BRANCHES[stack] if other_layers or branch != "encoder_attn"]
    before = (layer - 1) * len(branches)
    sublayers = layers * len(branches)
    return {
        branch: Place(stack, branch, before + number, sublayers, layer, layers, other_layers)
        for number, branch in enumerate(branches, start=1)
    }


def _build_connection(spec: str, features: int, place: Place) -> Connection:
    return build_connection(spec, features, place=place, host_supplies=HOST_NEEDS)


def scale_branch(connection: Connection, *linears: Linear) -> None:
    """Multiplies the weights of a branch by its connection's gain."""
    gain = connection.branch_gain
    if gain != 1:
        with torch.no_grad():
            for linear in linears:
                linear.gain = gain
                linear.weight.mul_(gain)
