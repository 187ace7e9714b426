"""The computation of a stack as a program for the compiled kernels. C features, R rows: the beams of all sentences."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from rskip.connections import Connection, StackConnection, State
from rskip.connections.gated_sum import gated_sum
from rskip.connections.normalised_sum import is_plain_norm, normalised_sum
from rskip.connections.norms import RMSNorm
from rskip.connections.sandwich import PeriLNStack
from rskip.cpu.int8 import Int8Linear
from rskip.cpu.library import Library
from rskip.cpu.linear import PackedLinear, linear_work
from rskip.cpu.residual import residual_arguments
from rskip.cpu.structures import (
    ATTEND,
    EMBED,
    GATE,
    HIGHWAY,
    IDENTITY,
    JOIN,
    MAP,
    MAP8,
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
)
from rskip.kernel_forms import GatedSum, NormalisedSum
from rskip.transformer.attention import MultiHeadAttention
from rskip.transformer.embedding import EmbeddingModule
from rskip.transformer.layers import TransformerLayer
from rskip.transformer.value_residual import FirstValues

Activation = Callable[[Tensor], Tensor]
Steps = TypeVar("Steps")

_ACTIVATIONS: dict[Any, int] = {functional.relu: RELU, torch.tanh: TANH}  # of the maps' kernels
_FEWEST_ROWS = 16  # minimum size of a program; one that is larger by more than this factor is replaced


class Room(NamedTuple):
    """Memory for the rows of a stack: its layers' input and output x, the branches' inputs, and their results."""

    x: Tensor
    given: Tensor
    query: Tensor
    key: Tensor
    value: Tensor
    inner: Tensor
    f: Tensor


class Program:
    """A sequence of operations on rows.

    The kernels compute packed linear maps, attention, embedding, and connections with `as_norms`. The modules
    themselves compute the rest. One thread computes all rows of a sentence.

    :param like: a tensor of the rows' type.
    :param rows: maximum number of rows.
    """

    def __init__(self, library: Library, like: Tensor, rows: int) -> None:
        self.library, self.rows, self._like = library, rows, like
        self._parts: list[Callable[[int, int], None]] = []  # called with the numbers of sentences and beams
        self._tables: list[tuple[Operations, int]] = []  # those of the parts that are kernels, with their work per row
        self._operations: list[Operation] = []  # not in a part yet
        self._buffers: dict[tuple[str, int], Tensor] = {}
        self._work = 0  # of these operations, per row
        self._passes_more = False  # whether a connection passes on more than x, which is stored here during a run
        self._passed: State | None = None
        self._first_values = FirstValues()

    def room(self, features: int, inner_features: int) -> Room:
        """Buffers for rows with these numbers of features."""
        sizes = {name: inner_features if name == "inner" else features for name in Room._fields}
        return Room(**{name: self._like.new_empty(self.rows, size) for name, size in sizes.items()})

    def run(self, sentences: int, beams: int) -> None:
        """Computes the rows of this number of sentences."""
        self._end_part()
        self._passed, self._first_values = None, FirstValues()
        for part in self._parts:
            part(sentences, beams)

    def whole(self) -> tuple[Operations, int] | None:
        """The operations and their work per row if kernels compute all of the program."""
        self._end_part()
        return self._tables[0] if len(self._parts) == len(self._tables) == 1 else None

    def embed(self, module: EmbeddingModule, output: Tensor) -> Embedding:
        """Adds an embedding. The caller sets tokens and positions in the returned arguments."""
        table = module.embed_tokens.weight
        arguments = Embedding(table=table, output=output, features=table.size(1), scale=module.embed_scale)
        self._put(EMBED, arguments)
        self.norm(module.layernorm_embedding, output)
        return arguments

    def attend(self, seen: Seen, query: Tensor, output: Tensor, heads: int) -> Attention:
        """Adds an attention. The caller sets keys and values in the returned arguments."""
        features = query.size(1)
        arguments = Attention(seen=seen, query=query, output=output, heads=heads, features=features // heads)
        self._put(ATTEND, arguments, work=features)
        return arguments

    def map(self, linear: nn.Module, x: Tensor, output: Tensor, *, activation: Activation | None = None) -> None:
        """output = activation(linear(x))."""
        if (native := self.last_map(linear, x)) is not None:
            native.point("output", output)
            native.activation = _ACTIVATIONS.get(activation, IDENTITY)
        else:
            self._put_module(linear, output, x)
        if activation is not None and not (native and native.activation):
            self._put_module(activation, output, output)

    def last_map(self, linear: nn.Module, x: Tensor) -> Linear | Linear8 | None:
        """Like `map`, but the caller sets the output in the returned arguments. None: the module must compute it."""
        native = linear.native_arguments(x) if isinstance(linear, (PackedLinear, Int8Linear)) else None
        if native is not None:
            self._put(MAP if isinstance(native, Linear) else MAP8, native, work=linear_work(native))
        return native

    def norm(self, norm: nn.Module | None, x: Tensor) -> None:
        """x = norm(x), for norms that close a stack or an embedding, or are inside a branch."""
        if norm is None:
            return
        if isinstance(norm, (nn.LayerNorm, RMSNorm)):
            self._put_residual(NormalisedSum(norms=[norm]), x, None, x)
        else:
            self._put_module(norm, x, x)

    def enter(self, stack: StackConnection, room: Room) -> None:
        """Opens the stack with its input x."""

        def compute(rows: int) -> None:
            x = room.x[:rows]
            passed = stack.enter(x)
            if isinstance(passed, Tensor) and passed.shape == x.shape:
                x.copy_(passed)
            else:
                self._passed = passed

        if isinstance(stack, PeriLNStack) and type(stack).enter is PeriLNStack.enter:
            self.norm(stack.norm, room.x)
        elif type(stack).enter is not StackConnection.enter:
            self._put_part(compute)

    def leave(self, stack: StackConnection, room: Room) -> None:
        """x = the stack's output."""

        def compute(rows: int) -> None:
            room.x[:rows] = stack.leave(room.x[:rows] if self._passed is None else self._passed)
            self._passed = None

        if self._passes_more or type(stack).leave is not StackConnection.leave:
            self._put_part(compute)

    def branch_input(self, connection: Connection, room: Room) -> Tensor:
        """The input of the connection's branch: x, or the result in `given`."""

        def compute(rows: int) -> None:
            given, self._passed = connection.before(room.x[:rows] if self._passed is None else self._passed)
            room.given[:rows] = given

        stated = self._normalised_sum(connection) or self._gated_sum(connection)
        if stated is not None:
            if stated.branch_norm is None:
                return room.x
            self._put_residual(NormalisedSum(norms=[stated.branch_norm]), room.x, None, room.given)
            if isinstance(stated, NormalisedSum) and stated.input_scale != 1:
                self._put_residual(NormalisedSum(scale=stated.input_scale), room.given, None, room.given)
            return room.given
        if not connection.passes_x:
            self._passes_more = True
            self._put_part(compute)
            return room.given
        if type(connection).branch_input is Connection.branch_input:
            return room.x
        self._put_module(connection.branch_input, room.given, room.x)
        return room.given

    def join(self, connection: Connection, room: Room) -> None:
        """x = connection(x, f), or the several tensors that the connection passes on."""

        def compute(rows: int) -> None:
            assert self._passed is not None
            self._passed = connection.after(self._passed, room.f[:rows].clone())  # f is overwritten by the next branch

        if (stated := self._normalised_sum(connection)) is not None:
            self._put_sum(stated, room)
        elif (gated := self._gated_sum(connection)) is not None:
            self._put_gates(gated, room)
        elif not connection.passes_x:
            self._put_part(compute)
        else:
            self._put_module(connection, room.x, room.x, room.f)

    def self_attention(self, layer: TransformerLayer, seen: Seen, room: Room) -> Attention:
        """Adds the layer's self-attention and connection. The caller sets keys and values in the returned arguments."""
        attention, connection = layer.self_attn, layer.self_attn_connection
        given = self.branch_input(connection, room)
        self.query(attention, given, room)
        self.map(attention.k_proj, given, room.key)
        self._norm_heads(attention, attention.key_norm, room.key)
        self.map(attention.v_proj, given, room.value)
        self._norm_heads(attention, attention.value_norm, room.value)
        if (value_residual := attention.value_residual) is not None:
            self._put_module(lambda own: value_residual(own.clone(), self._first_values), room.value, room.value)
        arguments = self.attend(seen, room.query, room.query, attention.heads)
        self.attention_output(attention, room)
        self.join(connection, room)
        return arguments

    def query(self, attention: MultiHeadAttention, given: Tensor, room: Room) -> None:
        """The attention's queries, from the branch's input."""
        self.map(attention.q_proj, given, room.query)
        self._norm_heads(attention, attention.query_norm, room.query)

    def attention_output(self, attention: MultiHeadAttention, room: Room) -> None:
        """The branch's output from the heads' outputs, which are in `query`."""
        if attention.head_scale is not None:
            scale = attention.head_scale.repeat_interleave(room.query.size(1) // attention.heads)
            self._put_residual(NormalisedSum(scale=scale), room.query, None, room.query)
        self.norm(attention.heads_norm, room.query)
        self.map(attention.out_proj, room.query, room.f)
        self.norm(attention.output_norm, room.f)

    def feed_forward(self, layer: TransformerLayer, room: Room) -> None:
        """Adds the layer's feed-forward branch and its connection."""
        given = self.branch_input(layer.ffn_connection, room)
        self.map(layer.fc1, given, room.inner, activation=layer.activation)
        self.norm(layer.hidden_norm, room.inner)
        self.map(layer.fc2, room.inner, room.f)
        self.join(layer.ffn_connection, room)

    def _norm_heads(self, attention: MultiHeadAttention, norm: nn.Module | None, x: Tensor) -> None:
        """x = norm(x), over each head's features."""
        if norm is None:
            return
        if is_plain_norm(norm):
            arguments = residual_arguments(NormalisedSum(norms=[norm]), x, None, x, parts=attention.heads)
            self._put(RESIDUAL, arguments)
        else:
            self._put_module(lambda rows: norm(rows.unflatten(-1, (attention.heads, -1))).flatten(-2), x, x)

    def _put_residual(self, stated: NormalisedSum, x: Tensor, f: Tensor | None, output: Tensor) -> None:
        self._put(RESIDUAL, residual_arguments(stated, x, f, output))

    def _normalised_sum(self, connection: Connection) -> NormalisedSum | None:
        """The connection's sums and normalisations, if all of its maps are packed for the kernels."""
        stated = normalised_sum(connection)
        return stated if stated is not None and all(map(_is_packed, stated.added or ())) else None

    def _put_sum(self, stated: NormalisedSum, room: Room) -> None:
        if stated.added is not None:
            down, up = stated.added
            hidden, added = self._buffer("hidden", down.out_features), self._buffer("added", room.x.size(1))
            self.map(down, room.x, hidden)
            self.map(up, hidden, added)
            self._put_residual(NormalisedSum(), room.x, added, room.x)
        self.norm(stated.output_norm, room.f)
        self._put_residual(stated, room.x, room.f, room.x)

    def _gated_sum(self, connection: Connection) -> GatedSum | None:
        """The connection's gates, if all of their maps are packed for the kernels."""
        stated = gated_sum(connection)
        if stated is None:
            return None
        maps = [each for gate in (stated.alpha, stated.beta, stated.gamma) if gate for each in gate.children()]
        return stated if all(map(_is_packed, maps)) else None

    def _put_gates(self, stated: GatedSum, room: Room) -> None:
        features, over = room.x.size(1), room.x
        if stated.over == "both":
            over = self._buffer("both", 2 * features)
            self._put(JOIN, Joining(x=room.x, f=room.f, output=over, features=features))
        arguments = Gating(
            x=room.x, f=room.f, output=room.x, features=features, width=stated.alpha.output.out_features,
            form={"scaling": SCALING, "highway": HIGHWAY, "shortcut": SHORTCUT}[stated.form],
        )  # fmt: skip
        for name, gate in (("alpha", stated.alpha), ("beta", stated.beta), ("gamma", stated.gamma)):
            if gate is None:
                continue
            given = over
            if gate.hidden is not None:
                given = self._buffer("hidden", gate.hidden.out_features)
                self.map(gate.hidden, over, given, activation=torch.tanh)
            opening = self._buffer(name, gate.output.out_features)
            self.map(gate.output, given, opening)
            arguments.point(name, opening)
        if stated.norm is not None:
            normed = self._buffer("normed", features)
            self._put_residual(NormalisedSum(norms=[stated.norm]), room.x, room.f, normed)
            arguments.point("n", normed)
        self._put(GATE, arguments)

    def _buffer(self, name: str, features: int) -> Tensor:
        """Memory for rows of a gate, which all connections share."""
        key = name, features
        if key not in self._buffers:
            self._buffers[key] = self._like.new_empty(self.rows, features)
        return self._buffers[key]

    def _put(self, kernel: int, arguments: Any, *, work: int = 0) -> None:
        self._operations.append(Operation(arguments=arguments, kernel=kernel))
        self._work += work

    def _put_module(self, module: Callable[..., Tensor], output: Tensor, *inputs: Tensor) -> None:
        def compute(rows: int) -> None:
            output[:rows] = module(*(each[:rows] for each in inputs))

        self._put_part(compute)

    def _put_part(self, compute: Callable[[int], None]) -> None:
        """Adds a step that is not a kernel; it is called with the number of rows."""
        self._end_part()
        self._parts.append(lambda sentences, beams: compute(sentences * beams))

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


class CpuStack(ABC, Generic[Steps]):
    """Runs a stack of layers as programs. Each thread keeps one program.

    If modules or parameters of the stack are replaced or packed again, build a new one.
    """

    def __init__(self, stack: nn.Module, library: Library) -> None:
        self.library = library
        self._programs = threading.local()
        self._parts = _parts(stack)
        self._values = [(each, each.data_ptr(), _version(each)) for each in stack.parameters()]

    def current(self) -> bool:
        """Whether modules, parameters and packed weights are still the same objects with the same values."""
        for held, name, part in self._parts:
            if held.get(name) is not part:
                return False
        return all(each.data_ptr() == address and _version(each) == version for each, address, version in self._values)

    @abstractmethod
    def build(self, rows: int) -> Steps:
        """A program for up to this number of rows."""

    def program(self, rows: int) -> Steps:
        """This thread's program."""
        most, program = getattr(self._programs, "kept", (0, None))
        if program is None or not most >= rows >= most // _FEWEST_ROWS:
            most = max(rows, _FEWEST_ROWS)
            with torch.inference_mode(False):  # so that callers outside of inference mode can use it too
                program = self.build(most)
            self._programs.kept = most, program
        return program


def unpadded(padding: Tensor) -> tuple[Tensor, Tensor]:
    """Positions (B, S) that are not padding, moved to the front, and their number per sentence (B)."""
    return padding.to(torch.uint8).sort(dim=1, stable=True)[1].int(), (padding.size(1) - padding.sum(1)).int()


def _version(tensor: Tensor) -> int | None:
    """The number of changes in place; None: unknown."""
    return None if tensor.is_inference() else tensor._version


def _is_packed(module: nn.Module) -> bool:
    return isinstance(module, (PackedLinear, Int8Linear))


def _parts(stack: nn.Module) -> list[tuple[dict[str, Any], str, Any]]:
    """Each module, parameter and packed weight, with its owner and name."""
    return [
        (held, name, part)
        for module in stack.modules()
        for held in (module._modules, module._parameters, module.__dict__)
        for name, part in held.items()
        if held is not module.__dict__ or (isinstance(module, (PackedLinear, Int8Linear)) and name == "packed")
    ]
