"""Decoding token by token on a CPU by the compiled kernels. B sentences, K beams, S source length, C features."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from rskip.native import native_library
from rskip.native.library import ATTEND, EMBED, MAP, RESIDUAL, TYPES, Attention, Embedding, Library, Operation
from rskip.transformer.decoder import Decoder
from rskip.transformer.encoder import Memory
from rskip.transformer.layers import DecoderLayer
from rskip.transformer.native_kernels import LinearMap, ResidualNorms, build_joint

_FIRST_SLOTS = 32  # of a sentence, and four a beam
_FEW_ROWS = 5  # that are computed by the kernels alone: one sentence with the usual beams

KeysValues = tuple[Tensor, Tensor]


def native_decoder(decoder: Decoder) -> NativeDecoder | None:
    """The decoder by the compiled kernels; None where they or it don't suit: on another device than a CPU, in another
    type than float32 and bfloat16, in training."""
    library = native_library(decoder.embed_tokens.weight)
    return None if library is None or decoder.training else NativeDecoder(decoder, library)


class NativeState:
    """What `NativeDecoder` keeps between steps.

    Keys and values lie in slots that a sentence's beams share, and each beam sees those of its own history. So beams
    are reordered, and sentences leave, by moving lists of slots alone.
    attention: (B, K, S), the last layer's weights over the memory at the last step, where asked for.
    """

    def __init__(
        self, decoder: NativeDecoder, memory: list[KeysValues], padding: Tensor, *, attention: bool
    ) -> None:
        sentences, length = padding.shape
        self.decoder = decoder
        self.memory = memory  # of each layer, (places, S, C)
        self.target: list[KeysValues] = []  # of each layer, (places, slots, C)
        self.places = torch.arange(sentences, dtype=torch.int32)  # (B) where in these each sentence lies
        # the source positions that are no padding, (B, S) of which `source_counts` (B) are there
        self.source_slots = padding.to(torch.uint8).sort(dim=1, stable=True)[1].int()
        self.source_counts = (length - padding.sum(1)).int()
        self.slots = torch.zeros(sentences, 1, _FIRST_SLOTS, dtype=torch.int32)  # (B, K, room), of which `length`
        self.length = 0
        self.wants_attention = attention
        self.attention: Tensor | None = None
        self.program: _Program | None = None

    def reorder(self, parents: Tensor, sentences: Tensor | None = None) -> None:
        """As `DecoderState.reorder`."""
        if sentences is not None:
            self.places = self.places[sentences]
            self.source_slots = self.source_slots[sentences]
            self.source_counts = self.source_counts[sentences]
            self.program = None
        before, parents = self.slots, parents.contiguous()
        if self.length == before.size(2):
            before = functional.pad(before, (0, before.size(2)))
            self.program = None
        count, beams = parents.shape
        self.slots = torch.empty(count, beams, before.size(2), dtype=torch.int32)
        self.decoder.library.reorder_slots(
            before.data_ptr(), self.slots.data_ptr(), None if sentences is None else sentences.data_ptr(),
            parents.data_ptr(), count, before.size(1), beams, before.size(2), self.length,
        )  # fmt: skip


class NativeDecoder:
    """Steps as `Decoder`'s, whose attention, connections and small products the kernels compute.

    Linear maps of many rows are the decoder's own modules, and so are connections but xskip, rskip and prenorm with ln
    or rms. Logits equal `Decoder`'s but for rounding: sums are in float32 also within bfloat16.
    """

    def __init__(self, decoder: Decoder, library: Library) -> None:
        self.decoder, self.library = decoder, library
        self.layers = [_Layer(layer, library) for layer in decoder.decoder_layers()]
        self.embedding_norm, self.closing_norm = (
            None if norm is None else ResidualNorms([norm], library)
            for norm in (decoder.layernorm_embedding, decoder.layer_norm)
        )
        self.output_projection = LinearMap(decoder.output_projection)
        self.native = self.output_projection.native and all(layer.native for layer in self.layers)

    @torch.no_grad()
    def start(self, memory: Memory, *, attention: bool = False) -> NativeState:
        """As `Decoder.start`."""
        projected = [
            (layer.cross.k_proj(memory.states).contiguous(), layer.cross.v_proj(memory.states).contiguous())
            for layer in self.layers
        ]
        return NativeState(self, projected, memory.padding, attention=attention)

    @torch.no_grad()
    def step(self, tokens: Tensor, state: NativeState) -> Tensor:
        """As `Decoder.step`."""
        sentences, beams = tokens.shape
        self._open_slots(state, sentences, beams)
        if self.native and sentences * beams <= _FEW_ROWS:
            if state.program is None or state.program.shape != (sentences, beams):
                state.program = _Program(self, state, sentences, beams)
            return state.program.run(tokens, state)
        position = torch.full((1, 1), self.decoder.config.padding_index + state.length)
        x = self.decoder.embed(tokens, position, length=state.length).flatten(0, 1)  # (B·K, C)
        for number, layer in enumerate(self.layers):
            x = layer.step(x, number, state)
        if self.closing_norm is not None:
            x = self.closing_norm(x)
        return self.output_projection(x).view(sentences, beams, -1)

    def _open_slots(self, state: NativeState, sentences: int, beams: int) -> None:
        """A slot for the next position of each beam."""
        if not state.target:
            state.target = [_with_slots(each, _FIRST_SLOTS + 4 * beams) for each in state.memory]
        count = state.target[0][0].size(1)
        while not self.library.open_slots(
            state.slots.data_ptr(), sentences, beams, state.slots.size(2), state.length,
            count, (ctypes.c_uint8 * count)(),
        ):  # fmt: skip
            state.target = [_with_slots(each, count + count // 2 + beams, kept=count) for each in state.target]
            state.program = None
            count = state.target[0][0].size(1)
        state.length += 1


def _with_slots(like: KeysValues, count: int, *, kept: int = 0) -> KeysValues:
    key, value = (each.new_empty(each.size(0), count, each.size(2)) for each in like)
    if kept:
        key[:, :kept], value[:, :kept] = like
    return key, value


class _Layer:
    """A decoder layer's step."""

    def __init__(self, layer: DecoderLayer, library: Library) -> None:
        self.attend = library.attend
        self.own, self.cross = layer.self_attn, layer.encoder_attn
        self.own_q, self.own_k, self.own_v, self.own_out, self.cross_q, self.cross_out = (
            LinearMap(each)
            for each in (
                self.own.q_proj, self.own.k_proj, self.own.v_proj, self.own.out_proj,
                self.cross.q_proj, self.cross.out_proj,
            )
        )  # fmt: skip
        relu = layer.activation is functional.relu
        self.fc1, self.fc2 = LinearMap(layer.fc1, relu=relu), LinearMap(layer.fc2)
        self.activation = None if relu else layer.activation
        self.own_joint, self.cross_joint, self.ffn_joint = (
            build_joint(each, library)
            for each in (layer.self_attn_connection, layer.encoder_attn_connection, layer.ffn_connection)
        )
        joints = (self.own_joint, self.cross_joint, self.ffn_joint)
        self.native = relu and self.fc1.native and all(isinstance(each, ResidualNorms) for each in joints)

    def step(self, x: Tensor, number: int, state: NativeState) -> Tensor:
        """The layer's input x (B·K, C) to its output."""
        given = self.own_joint.branch_input(x)
        query, key, value = self.own_q(given), self.own_k(given), self.own_v(given)
        output = torch.empty_like(query)
        sentences, numbers = state.slots.size(0), query.numel()
        self.attend(
            self.over_target(query, key, value, output, number, state), sentences, work=state.length * numbers
        )
        x = self.own_joint(x, self.own_out(output))
        query = self.cross_q(self.cross_joint.branch_input(x))
        work = state.source_slots.size(1) * numbers
        self.attend(self.over_memory(query, output, number, state), sentences, work=work)
        x = self.cross_joint(x, self.cross_out(output))
        inner = self.fc1(self.ffn_joint.branch_input(x))
        return self.ffn_joint(x, self.fc2(inner if self.activation is None else self.activation(inner)))

    def over_target(
        self, query: Tensor, key: Tensor, value: Tensor, output: Tensor, number: int, state: NativeState
    ) -> Attention:
        """Arguments of self-attention, which puts the new keys and values (B·K, C) into their slots."""
        return Attention(
            new_key=key.data_ptr(), new_value=value.data_ptr(), slots=state.slots.data_ptr(), count=state.length,
            slots_sentence=state.slots.stride(0), slots_beam=state.slots.stride(1),
            **self._attention(query, state.target[number], output, state),
        )  # fmt: skip

    def over_memory(self, query: Tensor, output: Tensor, number: int, state: NativeState) -> Attention:
        """Arguments of attention to the memory."""
        arguments = Attention(
            slots=state.source_slots.data_ptr(), counts=state.source_counts.data_ptr(),
            slots_sentence=state.source_slots.stride(0),
            **self._attention(query, state.memory[number], output, state),
        )  # fmt: skip
        if state.wants_attention and number == len(state.memory) - 1:
            state.attention = torch.empty(*state.slots.shape[:2], state.source_slots.size(1))
            arguments.weights, arguments.weights_beam = state.attention.data_ptr(), state.attention.size(2)
        return arguments

    def _attention(
        self, query: Tensor, memory: KeysValues, output: Tensor, state: NativeState
    ) -> dict[str, Any]:
        key, value = memory
        features, heads = query.size(1), self.own.heads
        return {
            "query": query.data_ptr(), "key": key.data_ptr(), "value": value.data_ptr(), "output": output.data_ptr(),
            "place": state.places.data_ptr(), "query_row": features,
            "slots_per_place": key.size(1), "beams": state.slots.size(1), "heads": heads,
            "features": features // heads, "type": TYPES[query.dtype],
        }  # fmt: skip


class _Program:
    """A step of few rows as a list of operations over memory of its own, run by one call."""

    def __init__(self, decoder: NativeDecoder, state: NativeState, sentences: int, beams: int) -> None:
        self.shape = (sentences, beams)
        self.decoder, self.library = decoder.decoder, decoder.library
        layers, rows = decoder.layers, sentences * beams
        weight = self.decoder.embed_tokens.weight
        self.type, self.features, self.vocabulary = weight.dtype, weight.size(1), decoder.output_projection.outputs
        x, given, query, key, value, f = weight.new_empty(6, rows, self.features)
        inner = weight.new_empty(rows, layers[0].fc1.outputs)
        self.memory = (x, given, query, key, value, f, inner)
        self.operations: list[tuple[int, Any, int]] = []

        def put(kernel: int, arguments: Any, count: int) -> Any:
            self.operations.append((kernel, arguments, count))
            return arguments

        def put_map(linear: LinearMap, x: Tensor, y: Tensor) -> None:
            put(MAP, linear.operation(x, y), linear.outputs)

        def put_norm(joint: Any, x: Tensor, f: Tensor | None, y: Tensor) -> None:
            put(RESIDUAL, joint.operation(x, f, y), rows)

        def branch_input(joint: Any) -> Tensor:
            if joint.branch_norm is None:
                return x
            put_norm(joint.branch_norm, x, None, given)
            return given

        embedding = Embedding(
            table=weight.data_ptr(), output=x.data_ptr(), features=self.features, scale=self.decoder.embed_scale,
            type=TYPES[weight.dtype],
        )  # fmt: skip
        self.embedding = put(EMBED, embedding, rows)
        if decoder.embedding_norm is not None:
            put_norm(decoder.embedding_norm, x, None, x)
        self.over_target = []
        for number, layer in enumerate(layers):
            source = branch_input(layer.own_joint)
            for linear, y in ((layer.own_q, query), (layer.own_k, key), (layer.own_v, value)):
                put_map(linear, source, y)
            over_target = layer.over_target(query, key, value, query, number, state)
            self.over_target.append(put(ATTEND, over_target, sentences))
            put_map(layer.own_out, query, f)
            put_norm(layer.own_joint, x, f, x)
            put_map(layer.cross_q, branch_input(layer.cross_joint), query)
            self.over_memory = put(ATTEND, layer.over_memory(query, query, number, state), sentences)
            put_map(layer.cross_out, query, f)
            put_norm(layer.cross_joint, x, f, x)
            put_map(layer.fc1, branch_input(layer.ffn_joint), inner)
            put_map(layer.fc2, inner, f)
            put_norm(layer.ffn_joint, x, f, x)
        if decoder.closing_norm is not None:
            put_norm(decoder.closing_norm, x, None, x)
        logits = decoder.output_projection.operation(x, x)
        self.logits = put(MAP, logits, self.vocabulary)
        self.table = (Operation * len(self.operations))(
            *(Operation(ctypes.addressof(arguments), kernel, count) for kernel, arguments, count in self.operations)
        )

    def run(self, tokens: Tensor, state: NativeState) -> Tensor:
        """Logits (B, K, V) of what follows `tokens` (B, K)."""
        tokens = tokens.contiguous()
        self.embedding.tokens = tokens.data_ptr()
        position = self._position(state.length)
        self.embedding.position = None if position is None else position.data_ptr()
        slots, length = state.slots.data_ptr(), state.length
        for each in self.over_target:
            each.slots, each.count = slots, length
        if state.wants_attention:
            state.attention = torch.empty(*self.shape, state.source_slots.size(1))
            self.over_memory.weights = state.attention.data_ptr()
        logits = torch.empty(*self.shape, self.vocabulary, dtype=self.type)
        self.logits.output = logits.data_ptr()
        self.library.run(self.table, len(self.table))
        return logits

    def _position(self, length: int) -> Tensor | None:
        positions = self.decoder.embed_positions
        if positions is None:
            return None
        positions.grow(length)
        return positions.rows[self.decoder.config.padding_index + length]
