"""The computation of a stack as a program for the compiled kernels. C features, R rows: the beams of all sentences.

A stack is any object with the members of `rskip.transformer`'s stacks: a module, or weights of a file
(`rskip.cpu.weights`). This module needs NumPy, but no PyTorch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np

from rskip.cpu.library import Library
from rskip.cpu.packing import PackedTable
from rskip.cpu.residual import in_float32, residual_arguments
from rskip.cpu.structures import (
    ATTEND,
    DELTA,
    EMBED,
    GATE,
    HIGHWAY,
    IDENTITY,
    JOIN,
    MAP,
    MAP8,
    ORTHOGONAL,
    RELU,
    RESIDUAL,
    SCALING,
    SHORTCUT,
    TANH,
    Attention,
    Embedding,
    Gating,
    Joining,
    Linear,
    Linear8,
    Operation,
    Operations,
    Seen,
    linear_work,
    room,
)
from rskip.kernel_forms import GatedSum, NoKernelForm, NormalisedSum

Steps = TypeVar("Steps")

_FEWEST_ROWS = 16  # minimum size of a program; one that is larger by more than this factor is replaced
_FORMS = {
    "scaling": SCALING, "highway": HIGHWAY, "shortcut": SHORTCUT, "orthogonal": ORTHOGONAL, "delta": DELTA
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


class Program:
    """A sequence of kernels on rows. One thread computes all rows of a sentence.

    What the kernels can't compute raises `NoKernelForm`; a derived class may compute it.

    :param like: an array of the rows' type.
    :param rows: maximum number of rows.
    """

    activations: ClassVar[dict[Any, int]] = {"relu": RELU, "tanh": TANH}  # of the maps' kernels

    def __init__(self, library: Library, like: Any, rows: int) -> None:
        self.library, self.rows, self._like = library, rows, like
        self._operations: list[Operation] = []
        self._buffers: dict[tuple[str, int], Any] = {}
        self._work = 0  # per row
        self._table: tuple[Operations, int] | None = None

    def room(self, features: int, inner_features: int) -> Room:
        """Buffers for rows with these numbers of features."""
        sizes = {name: inner_features if name == "inner" else features for name in Room._fields}
        return Room(**{name: room(self._like, self.rows, size) for name, size in sizes.items()})

    def run(self, sentences: int, beams: int) -> None:
        """Computes the rows of this number of sentences."""
        found = self.whole()
        assert found is not None
        operations, work = found
        operations.beams = beams
        self.library.run(operations, sentences, work=work * sentences * beams)

    def whole(self) -> tuple[Operations, int] | None:
        """The operations and their work per row if kernels compute all of the program."""
        if self._table is None:
            self._table = Operations(self._operations), self._work
        return self._table

    def embed(self, stack: Any, output: Any) -> Embedding:
        """Adds an embedding. The caller sets tokens and positions in the returned arguments."""
        table, packed = stack.embed_tokens.weight, 0
        features = table.shape[1]
        if isinstance(table, PackedTable):
            table, packed = table.values, 1
        arguments = Embedding(
            table=table, output=output, features=features, packed=packed, scale=stack.embed_scale
        )
        self._put(EMBED, arguments)
        self.norm(stack.layernorm_embedding, output)
        return arguments

    def attend(self, seen: Seen, query: Any, output: Any, heads: int) -> Attention:
        """Adds an attention. The caller sets keys and values in the returned arguments."""
        features = query.shape[1]
        arguments = Attention(seen=seen, query=query, output=output, heads=heads, features=features // heads)
        self._put(ATTEND, arguments, work=features)
        return arguments

    def map(self, linear: Any, x: Any, output: Any, *, activation: Any = None) -> None:
        """output = activation(linear(x))."""
        if (native := self.last_map(linear, x)) is not None:
            assert native.outputs == output.shape[1]
            native.point("output", output)
            native.activation = self.activations.get(activation, IDENTITY)
        else:
            self.other(linear, output, x)
        if activation is not None and not (native and native.activation):
            self.other(activation, output, output)

    def last_map(self, linear: Any, x: Any) -> Linear | Linear8 | None:
        """Like `map`, but the caller sets the output in the returned arguments. None: no kernel computes it."""
        native: Linear | Linear8 | None = None
        if hasattr(linear, "native_arguments"):
            native = linear.native_arguments(x)
        if native is not None:
            self._put(MAP if isinstance(native, Linear) else MAP8, native, work=linear_work(native))
        return native

    def norm(self, norm: Any, x: Any) -> None:
        """x = norm(x), for norms that close a stack or an embedding, or are inside a branch."""
        if norm is None:
            return
        if self.has_kernel(norm):
            self._put_residual(NormalisedSum(norms=[norm]), x, None, x)
        else:
            self.other(norm, x, x)

    def has_kernel(self, norm: Any) -> bool:
        """Whether a kernel computes this normalisation."""
        return True

    def enter(self, stack: Any, room: Room) -> None:
        """Opens the stack with its input x. `stack`: the module that opens and closes it; None: it passes x on."""
        if stack is not None:
            raise NoKernelForm("the kernels can't open its stack")

    def leave(self, stack: Any, room: Room) -> None:
        """x = the stack's output."""
        if stack is not None:
            raise NoKernelForm("the kernels can't close its stack")

    def form(self, connection: Any) -> NormalisedSum | GatedSum | None:
        """The form in which the kernels compute the connection; None if they can't."""
        return connection if isinstance(connection, (NormalisedSum, GatedSum)) else None

    def branch_input(self, connection: Any, room: Room) -> Any:
        """The input of the connection's branch: x, or the result in `given`."""
        stated = self.form(connection)
        if stated is None:
            return self.other_branch_input(connection, room)
        if stated.branch_norm is None:
            return room.x
        self._put_residual(NormalisedSum(norms=[stated.branch_norm]), room.x, None, room.given)
        if isinstance(stated, NormalisedSum) and stated.input_scale != 1:
            self._put_residual(NormalisedSum(scale=stated.input_scale), room.given, None, room.given)
        return room.given

    def join(self, connection: Any, room: Room) -> None:
        """x = connection(x, f), or the several arrays that the connection passes on."""
        stated = self.form(connection)
        if stated is None:
            self.other_join(connection, room)
        elif isinstance(stated, NormalisedSum):
            self._put_sum(stated, room)
        else:
            self._put_gates(stated, room)

    def other(self, compute: Any, output: Any, *inputs: Any) -> None:
        """output = compute(*inputs), on rows."""
        raise NoKernelForm("the kernels can't compute a part of it")

    # the same of a connection without a form, of heads' norms without a kernel, and of values mixed with the first ones
    other_branch_input: Any = other
    other_join: Any = other
    other_norm_heads: Any = other
    mix_values: Any = other

    def self_attention(self, layer: Any, seen: Seen, room: Room) -> Attention:
        """Adds the layer's self-attention and connection. The caller sets keys and values in the returned arguments."""
        attention, connection = layer.self_attn, layer.self_attn_connection
        given = self.branch_input(connection, room)
        self.query(attention, given, room)
        self.map(attention.k_proj, given, room.key)
        self.norm_heads(attention, attention.key_norm, room.key)
        self.map(attention.v_proj, given, room.value)
        self.norm_heads(attention, attention.value_norm, room.value)
        if attention.value_residual is not None:
            self.mix_values(attention.value_residual, room)
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
            scale = np.repeat(in_float32(attention.head_scale, attention.heads), room.query.shape[1] // attention.heads)
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
        if norm is None:
            return
        if self.has_kernel(norm):
            arguments = residual_arguments(NormalisedSum(norms=[norm]), x, None, x, parts=attention.heads)
            self._put(RESIDUAL, arguments)
        else:
            self.other_norm_heads(attention, norm, x)

    def _put_residual(self, stated: NormalisedSum, x: Any, f: Any, output: Any) -> None:
        self._put(RESIDUAL, residual_arguments(stated, x, f, output))

    def _put_sum(self, stated: NormalisedSum, room: Room) -> None:
        if stated.added is not None:
            down, up = stated.added
            hidden, added = self._buffer("hidden", down.out_features), self._buffer("added", room.x.shape[1])
            self.map(down, room.x, hidden)
            self.map(up, hidden, added)
            self._put_residual(NormalisedSum(), room.x, added, room.x)
        self.norm(stated.output_norm, room.f)
        self._put_residual(stated, room.x, room.f, room.x)

    def _put_gates(self, stated: GatedSum, room: Room) -> None:
        features, over = room.x.shape[1], room.x
        if stated.over == "both":
            over = self._buffer("both", 2 * features)
            self._put(JOIN, Joining(x=room.x, f=room.f, output=over, features=features))
        arguments = Gating(x=room.x, f=room.f, output=room.x, features=features, width=1, form=_FORMS[stated.form])
        for name, gate in (("alpha", stated.alpha), ("beta", stated.beta), ("gamma", stated.gamma)):
            if gate is None:
                continue
            given = room.given if stated.form == "delta" and name == "alpha" else over
            hidden, output = getattr(gate, "hidden", None), getattr(gate, "output", gate)
            if hidden is not None:
                given = self._buffer("hidden", hidden.out_features)
                self.map(hidden, over, given, activation="tanh")
            opening = self._buffer(name, output.out_features)
            self.map(output, given, opening)
            arguments.point(name, opening)
            arguments.width = output.out_features
        if stated.norm is not None:
            normed = self._buffer("normed", features)
            self._put_residual(NormalisedSum(norms=[stated.norm]), room.x, room.f, normed)
            arguments.point("n", normed)
        self._put(GATE, arguments)

    def _buffer(self, name: str, features: int) -> Any:
        """Memory for rows of a gate, which all connections share."""
        key = name, features
        if key not in self._buffers:
            self._buffers[key] = room(self._like, self.rows, features)
        return self._buffers[key]

    def _put(self, kernel: int, arguments: Any, *, work: int = 0) -> None:
        self._operations.append(Operation(arguments=arguments, kernel=kernel))
        self._work += work


class Programs(Generic[Steps]):
    """Programs for a number of rows, one per thread. `build` makes one for up to this number."""

    def __init__(self, build: Callable[[int], Steps]) -> None:
        self._build, self._programs = build, threading.local()

    def program(self, rows: int) -> Steps:
        """This thread's program."""
        most, program = getattr(self._programs, "kept", (0, None))
        if program is None or not most >= rows >= most // _FEWEST_ROWS:
            most = max(rows, _FEWEST_ROWS)
            program = self._build(most)
            self._programs.kept = most, program
        return program
