"""The computation of a stack as a program for the compiled kernels. C features, R rows: the beams of all sentences.

A stack has the members of `rskip.transformer`'s stacks. It comes from the weights of a file (`rskip.cpu.weights`) or
from modules (`rskip.cpu.module_stack`), whose parts may be a `Call`. This module needs NumPy, but no PyTorch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np

from rskip.cpu.library import Library
from rskip.cpu.packing import PackedTable, in_float32
from rskip.cpu.structures import (
    Attention,
    Embedding,
    Gating,
    Joining,
    Linear,
    Linear8,
    Operation,
    Operations,
    Residual,
    Seen,
    addresses,
    constants,
    kind_of,
    linear_work,
    room,
)
from rskip.kernel_forms import GatedSum, NormalisedSum

Steps = TypeVar("Steps")

_FEWEST_ROWS = 16  # minimum size of a program; one that is larger by more than this factor is replaced
KERNEL_ACTIVATIONS = {  # of the maps' kernels
    "linear": constants.IDENTITY, "relu": constants.RELU, "tanh": constants.TANH, "swish": constants.SWISH,
    "gelu": constants.GELU, **dict.fromkeys(("gelu_accurate", "gelu_fast"), constants.GELU_TANH),
}  # fmt: skip


class Room(NamedTuple):
    """Memory for the rows of a stack: its layers' input and output x, the branches' inputs, and their results."""

    x: Any
    given: Any
    query: Any
    key: Any
    value: Any
    inner: Any
    f: Any


class Call(NamedTuple):
    """A linear map, normalisation or activation without a kernel form: PyTorch computes it between the kernels."""

    compute: Callable[..., Any]
    out_features: int = 0  # of a linear map


class Program:
    """A sequence of parts: kernels that run in sequence, or calls of PyTorch.

    kept: what the calls of one run keep for later calls.

    :param like: an array of the rows' type.
    :param rows: maximum number of rows. One thread computes all rows of a sentence.
    """

    def __init__(self, library: Library, like: Any, rows: int) -> None:
        self.library, self.rows, self._like = library, rows, like
        self.kept: dict[str, Any] = {}
        self._parts: list[Callable[[int, int], None]] = []  # called with the numbers of sentences and beams
        self._tables: list[tuple[Operations, int]] = []  # those of the parts that are kernels, with their work per row
        self._operations: list[Operation] = []  # of the last part
        self._work = 0  # per row
        self._buffers: dict[tuple[str, int], Any] = {}

    def room(self, features: int, inner_features: int) -> Room:
        """Buffers for rows with these numbers of features."""
        sizes = {name: inner_features if name == "inner" else features for name in Room._fields}
        return Room(**{name: room(self._like, self.rows, size) for name, size in sizes.items()})

    def run(self, sentences: int, beams: int) -> None:
        """Computes the rows of this number of sentences."""
        self._end_part()
        self.kept = {}
        for part in self._parts:
            part(sentences, beams)

    def whole(self) -> tuple[Operations, int] | None:
        """The operations and their work per row if kernels compute all of the program."""
        self._end_part()
        return self._tables[0] if len(self._parts) == len(self._tables) == 1 else None

    def call_rows(self, compute: Callable[[int], None]) -> None:
        """Adds a part that is not a kernel; it is called with the number of rows."""
        self._end_part()
        self._parts.append(lambda sentences, beams: compute(sentences * beams))

    def call(self, compute: Callable[..., Any], output: Any, *inputs: Any) -> None:
        """output = compute(*inputs), on rows."""

        def of_rows(rows: int) -> None:
            output[:rows] = compute(*(each[:rows] for each in inputs))

        self.call_rows(of_rows)

    def _end_part(self) -> None:
        if not self._operations:
            return
        operations, work, library_run = Operations(self._operations), self._work, self.library.run

        def compute(sentences: int, beams: int) -> None:
            operations.beams = beams
            library_run(operations, sentences, work=work * sentences * beams)

        self._parts.append(compute)
        self._tables.append((operations, work))
        self._operations, self._work = [], 0

    def embed(self, stack: Any, output: Any) -> Embedding:
        """Adds an embedding. The caller sets tokens and positions in the returned arguments."""
        table, packed = stack.embed_tokens.weight, 0
        features = table.shape[1]
        if isinstance(table, PackedTable):
            table, packed = table.values, 1
        arguments = Embedding(
            table=table, output=output, features=features, packed=packed, scale=stack.embed_scale
        )
        self._put(constants.EMBED, arguments)
        self.norm(stack.layernorm_embedding, output)
        return arguments

    def attend(self, seen: Seen, query: Any, output: Any, heads: int) -> Attention:
        """Adds an attention. The caller sets keys and values in the returned arguments."""
        features = query.shape[1]
        arguments = Attention(seen=seen, query=query, output=output, heads=heads, features=features // heads)
        self._put(constants.ATTEND, arguments, work=features)
        return arguments

    def map(self, linear: Any, x: Any, output: Any, *, activation: Any = None) -> None:
        """output = activation(linear(x)). `activation`: a `Call`, a name of a kernel's, or None."""
        native = self.last_map(linear, x)
        if native is None:
            self.call(linear.compute, output, x)
        else:
            assert native.outputs == output.shape[1]
            native.point("output", output)
            native.activation = KERNEL_ACTIVATIONS.get(activation, constants.IDENTITY)
        if isinstance(activation, Call):
            self.call(activation.compute, output, output)

    def last_map(self, linear: Any, x: Any) -> Linear | Linear8 | None:
        """Like `map`, but the caller sets the output in the returned arguments. None: no kernel computes it."""
        if isinstance(linear, Call):
            return None
        native: Linear | Linear8 = linear.native_arguments(x)
        kernel = constants.MAP if isinstance(native, Linear) else constants.MAP8
        self._put(kernel, native, work=linear_work(native))
        return native

    def norm(self, norm: Any, x: Any) -> None:
        """x = norm(x), for norms that close a stack or an embedding, or are inside a branch. None changes nothing."""
        if isinstance(norm, Call):
            self.call(norm.compute, x, x)
        elif norm is not None:
            self._put_residual(NormalisedSum(norms=[norm]), x, None, x)

    def enter(self, stack: Any, room: Room) -> None:
        """Opens the stack with its input x. `stack`: what opens and closes it; None: it passes x on."""
        if stack is not None:
            stack.enter(self, room)

    def leave(self, stack: Any, room: Room) -> None:
        """x = the stack's output."""
        if stack is not None:
            stack.leave(self, room)

    def branch_input(self, connection: Any, room: Room) -> Any:
        """The input of the connection's branch: x, or the result in `given`."""
        if not isinstance(connection, (NormalisedSum, GatedSum)):
            return connection.branch_input(self, room)
        if connection.branch_norm is None:
            return room.x
        self._put_residual(NormalisedSum(norms=[connection.branch_norm]), room.x, None, room.given)
        if isinstance(connection, NormalisedSum) and connection.input_scale != 1:
            self._put_residual(NormalisedSum(scale=connection.input_scale), room.given, None, room.given)
        return room.given

    def join(self, connection: Any, room: Room) -> None:
        """x = connection(x, f), or the several arrays that the connection passes on."""
        if isinstance(connection, NormalisedSum):
            self._put_sum(connection, room)
        elif isinstance(connection, GatedSum):
            self._put_gates(connection, room)
        else:
            connection.join(self, room)

    def self_attention(self, layer: Any, seen: Seen, room: Room) -> Attention:
        """Adds the layer's self-attention and connection. The caller sets keys and values in the returned arguments."""
        attention, connection = layer.self_attn, layer.self_attn_connection
        given = self.branch_input(connection, room)
        splits = getattr(connection, "splits_inputs", False)
        of_keys, of_values = connection.key_value_inputs(self, room) if splits else (given, given)
        self.query(attention, given, room)
        self.map(attention.k_proj, of_keys, room.key)
        self.norm_heads(attention, attention.key_norm, room.key)
        self.map(attention.v_proj, of_values, room.value)
        self.norm_heads(attention, attention.value_norm, room.value)
        if attention.value_residual is not None:
            attention.value_residual(self, room.value)
        arguments = self.attend(seen, room.query, room.query, attention.heads)
        self.attention_output(attention, room)
        self.join(connection, room)
        return arguments

    def query(self, attention: Any, given: Any, room: Room) -> None:
        """The attention's queries, from the branch's input."""
        self.map(attention.q_proj, given, room.query)
        self.norm_heads(attention, attention.query_norm, room.query)

    def attention_output(self, attention: Any, room: Room) -> None:
        """The branch's output from the heads' outputs, which are in `query`."""
        if attention.head_scale is not None:
            heads = attention.heads
            scale = np.repeat(in_float32(attention.head_scale, heads), room.query.shape[1] // heads)
            self._put_residual(NormalisedSum(scale=scale), room.query, None, room.query)
        self.norm(attention.heads_norm, room.query)
        self.map(attention.out_proj, room.query, room.f)
        self.norm(attention.output_norm, room.f)

    def feed_forward(self, layer: Any, room: Room) -> None:
        """Adds the layer's feed-forward branch and its connection."""
        given = self.branch_input(layer.ffn_connection, room)
        self.map(layer.fc1, given, room.inner, activation=layer.activation)
        self.norm(layer.hidden_norm, room.inner)
        self.map(layer.fc2, room.inner, room.f)
        self.join(layer.ffn_connection, room)

    def norm_heads(self, attention: Any, norm: Any, x: Any) -> None:
        """x = norm(x), over each head's features."""
        heads = attention.heads
        if isinstance(norm, Call):
            self.call(lambda rows: norm.compute(rows.unflatten(-1, (heads, -1))).flatten(-2), x, x)
        elif norm is not None:
            self._put(constants.RESIDUAL, residual_arguments(NormalisedSum(norms=[norm]), x, None, x, parts=heads))

    def _put_residual(self, stated: NormalisedSum, x: Any, f: Any, output: Any) -> None:
        self._put(constants.RESIDUAL, residual_arguments(stated, x, f, output))

    def _put_sum(self, stated: NormalisedSum, room: Room) -> None:
        if stated.added is not None:
            down, up = stated.added
            hidden, added = self.buffer("hidden", down.out_features), self.buffer("added", room.x.shape[1])
            self.map(down, room.x, hidden)
            self.map(up, hidden, added)
            self._put_residual(NormalisedSum(), room.x, added, room.x)
        self.norm(stated.output_norm, room.f)
        self._put_residual(stated, room.x, room.f, room.x)

    def _put_gates(self, stated: GatedSum, room: Room) -> None:
        features, over = room.x.shape[1], room.x
        if stated.over == "both":
            over = self.buffer("both", 2 * features)
            self._put(constants.JOIN, Joining(x=room.x, f=room.f, output=over, features=features))
        form = getattr(constants, stated.form.upper())
        arguments = Gating(x=room.x, f=room.f, output=room.x, features=features, width=1, form=form)
        for name, gate in (("alpha", stated.alpha), ("beta", stated.beta), ("gamma", stated.gamma)):
            if gate is None:
                continue
            given = room.given if stated.form == "delta" and name == "alpha" else over
            hidden, output = getattr(gate, "hidden", None), getattr(gate, "output", gate)
            if hidden is not None:
                given = self.buffer("hidden", hidden.out_features)
                self.map(hidden, over, given, activation="tanh")
            opening = self.buffer(name, output.out_features)
            self.map(output, given, opening)
            arguments.point(name, opening)
            arguments.width = output.out_features
        if stated.norm is not None:
            normed = self.buffer("normed", features)
            self._put_residual(NormalisedSum(norms=[stated.norm]), room.x, room.f, normed)
            arguments.point("n", normed)
        self._put(constants.GATE, arguments)

    def buffer(self, name: str, features: int) -> Any:
        """Memory for rows, shared by all parts that ask for this name."""
        key = name, features
        if key not in self._buffers:
            self._buffers[key] = room(self._like, self.rows, features)
        return self._buffers[key]

    def _put(self, kernel: int, arguments: Any, *, work: int = 0) -> None:
        self._operations.append(Operation(arguments=arguments, kernel=kernel))
        self._work += work


def residual_arguments(stated: NormalisedSum, x: Any, f: Any, output: Any, *, parts: int = 1) -> Residual:
    """The kernel's arguments for x, f and output (R, C). The output may be x or f.

    Of the stated sum, they have the normalisations after the sum, the scales and the shares.

    :param f: None means 0.
    :param parts: number of parts of a row, such as heads, which are computed one by one.
    """
    norms = stated.norms
    features = x.shape[1] // parts
    weights = [norm.weight for norm in norms]
    biases = [norm.bias for norm in norms if getattr(norm, "bias", None) is not None]
    assert all(kind_of(each) == kind_of(x) for each in (*weights, *biases)), "convert the whole model to one type"
    (scale, scales), (branch_scale, branch_scales) = (
        (each, None) if isinstance(each, (int, float)) else (1.0, in_float32(each, features))
        for each in (stated.scale, stated.branch_scale)
    )
    return Residual(
        x=x, f=f, output=output, weights=addresses(weights), biases=addresses(biases) if biases else None,
        scales=scales, branch_scales=branch_scales, features=features, norms=len(weights), parts=parts, scale=scale,
        shares=None if stated.shares is None else in_float32(stated.shares, len(weights)), branch_scale=branch_scale,
        epsilon=norms[0].eps if norms else 0.0,
    )  # fmt: skip


def per_thread(build: Callable[[int], Steps]) -> Callable[[int], Steps]:
    """A function that returns this thread's program for a number of rows. `build` makes one for up to this number."""
    programs = threading.local()

    def program(rows: int) -> Steps:
        most, found = getattr(programs, "kept", (0, None))
        if found is None or not most >= rows >= most // _FEWEST_ROWS:
            most = max(rows, _FEWEST_ROWS)
            found = build(most)
            programs.kept = most, found
        return found

    return program
