"""A Transformer's stacks from its modules, for programs of kernels. See `rskip.cpu.weights` for those of a file.

PyTorch computes the parts that have no kernel form, between the kernels.
"""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

from torch import Tensor, nn

from rskip.connections import Connection, FormulaStack, StackConnection
from rskip.connections.norms import RMSNorm, kind_of, without_autocast
from rskip.cpu.linear import Packed
from rskip.cpu.program import Call, Program, Room
from rskip.formulas import Norm
from rskip.kernel_forms import GatedSum, NormalisedSum
from rskip.transformer.decoder import Decoder
from rskip.transformer.encoder import Encoder
from rskip.transformer.layers import ACTIVATIONS
from rskip.transformer.value_residual import FirstValues, ValueResidual

_ACTIVATIONS: dict[Any, Any] = {function: name for name, function in ACTIVATIONS.items()}


class ModuleStack(SimpleNamespace):
    """The parts of an encoder or decoder in the form that programs read.

    If modules or parameters of the stack are replaced or packed again (`is_current`), build a new one.
    """

    def __init__(self, stack: Encoder | Decoder) -> None:
        layers = [_layer(each) for each in stack.layers]
        passes_x = all(each.passes_x for each in stack.modules() if isinstance(each, Connection))
        super().__init__(
            config=stack.config, embed_tokens=stack.embed_tokens, embed_scale=stack.embed_scale,
            embed_positions=stack.embed_positions, layernorm_embedding=_norm(stack.layernorm_embedding), layers=layers,
            stack_connection=_Ends(stack.stack_connection, passes_x=passes_x), layer_norm=_norm(stack.layer_norm),
        )  # fmt: skip
        if isinstance(stack, Decoder):
            self.output_projection = _linear(stack.output_projection)
            self.project = None if all(map(_has_kernel_projection, layers)) else lambda x: _project(stack, x)
        self._held = _held_parts(stack)
        self._values = [(each, each.data_ptr(), _version(each)) for each in stack.parameters()]

    def is_current(self) -> bool:
        """Whether modules, parameters and packed weights are still the same objects with the same values."""
        for held, name, part in self._held:
            if held.get(name) is not part:
                return False
        return all(each.data_ptr() == address and _version(each) == version for each, address, version in self._values)


def _layer(layer: Any) -> SimpleNamespace:
    fc1, activation = _linear(layer.fc1), _ACTIVATIONS.get(layer.activation)
    if activation is None or isinstance(fc1, Call):
        activation = Call(layer.activation)
    parts = SimpleNamespace(
        fc1=fc1, activation=activation, hidden_norm=_norm(layer.hidden_norm), fc2=_linear(layer.fc2),
        ffn_connection=_connection(layer.ffn_connection),
    )  # fmt: skip
    for branch in ("self_attn", "encoder_attn"):
        if hasattr(layer, branch):
            setattr(parts, branch, _attention(getattr(layer, branch)))
            setattr(parts, f"{branch}_connection", _connection(getattr(layer, f"{branch}_connection")))
    return parts


def _attention(attention: Any) -> SimpleNamespace:
    linears = {name: _linear(getattr(attention, name)) for name in ("q_proj", "k_proj", "v_proj", "out_proj")}
    norms = {f"{name}_norm": _norm(getattr(attention, f"{name}_norm")) for name in (
        "query", "key", "value", "heads", "output"
    )}  # fmt: skip
    mixing = attention.value_residual
    return SimpleNamespace(
        heads=attention.heads, head_scale=attention.head_scale,
        value_residual=None if mixing is None else partial(_mix, mixing), **linears, **norms,
    )  # fmt: skip


def _linear(linear: Any) -> Any:
    weight: Tensor = linear.weight
    return linear if isinstance(linear, Packed) and weight.is_contiguous() else Call(linear, linear.out_features)


def _norm(norm: nn.Module | None) -> Any:
    return norm if norm is None or _has_kernel(norm) else Call(norm)


def _has_kernel(norm: nn.Module) -> bool:
    kind = kind_of(norm)
    return issubclass(kind, RMSNorm) or (issubclass(kind, nn.LayerNorm) and norm.bias is not None)


def _connection(connection: Connection) -> Any:
    """The form in which the kernels compute the connection; without one, calls of its methods."""
    stated = connection.kernel_form()
    if isinstance(stated, NormalisedSum):
        maps, norms = list(stated.added or ()), [*stated.norms, stated.branch_norm, stated.output_norm]
        if len({(kind_of(norm), norm.eps) for norm in stated.norms}) > 1:
            return _Calls(connection)
    elif isinstance(stated, GatedSum):
        gates = [gate for gate in (stated.alpha, stated.beta, stated.gamma) if gate is not None]
        maps = [each for gate in gates for each in (list(gate.children()) or [gate])]
        norms = [stated.norm, stated.branch_norm]
    else:
        return _Calls(connection)
    has_kernels = not any(isinstance(part, Call) for part in (*map(_linear, maps), *map(_norm, norms)))
    return stated if has_kernels else _Calls(connection)


class _Calls:
    """A connection that PyTorch computes. A state of more than x is in the program's `kept` during a run."""

    def __init__(self, connection: Connection) -> None:
        self.connection, self.splits_inputs = connection, connection.splits_inputs

    def branch_input(self, program: Program, room: Room) -> Any:
        """As `Program.branch_input`."""
        connection = self.connection

        def compute(rows: int) -> None:
            given, program.kept["state"] = connection.before(program.kept.get("state", room.x[:rows]))
            room.given[:rows] = given

        if not connection.passes_x:
            program.call_rows(compute)
        elif connection.reads_x:
            return room.x
        else:
            program.call(connection.branch_input, room.given, room.x)
        return room.given

    def key_value_inputs(self, program: Program, room: Room) -> tuple[Any, Any]:
        """What keys and values read, after `branch_input`."""
        connection = self.connection
        inputs = program.buffer("key input", room.x.shape[1]), program.buffer("value input", room.x.shape[1])

        def compute(rows: int) -> None:
            for to, read in zip(inputs, connection.key_value_inputs(program.kept["state"]) or (), strict=True):
                to[:rows] = read

        program.call_rows(compute)
        return inputs

    def join(self, program: Program, room: Room) -> None:
        """As `Program.join`."""
        connection = self.connection

        def compute(rows: int) -> None:
            f = room.f[:rows].clone()  # the next branch overwrites it
            program.kept["state"] = connection.after(program.kept["state"], f)

        if connection.passes_x:
            program.call(connection, room.x, room.x, room.f)
        else:
            program.call_rows(compute)


class _Ends:
    """Opens and closes a stack. `passes_x`: whether all its connections pass on only x."""

    def __init__(self, stack: StackConnection, *, passes_x: bool) -> None:
        self.stack, self.passes_x = stack, passes_x

    def enter(self, program: Program, room: Room) -> None:
        """As `Program.enter`."""
        stack = self.stack

        def compute(rows: int) -> None:
            state = stack.enter(room.x[:rows])
            if isinstance(state, Tensor) and state.shape == room.x[:rows].shape:
                room.x[:rows] = state
            else:
                program.kept["state"] = state

        if isinstance(stack, FormulaStack) and isinstance(stack.formula.enters, Norm):
            program.norm(_norm(stack.get_submodule(stack.formula.enters.name)), room.x)
        elif stack.opens:
            program.call_rows(compute)

    def leave(self, program: Program, room: Room) -> None:
        """As `Program.leave`."""
        stack = self.stack

        def compute(rows: int) -> None:
            room.x[:rows] = stack.leave(program.kept.pop("state", room.x[:rows]))

        if not self.passes_x or stack.closes:
            program.call_rows(compute)


def _mix(mixing: ValueResidual, program: Program, values: Tensor) -> None:
    """Mixes the values of the stack's first self-attention into `values`."""

    def compute(own: Tensor) -> Tensor:
        return mixing(own.clone(), program.kept.setdefault("first values", FirstValues()))

    program.call(compute, values, values)


def _has_kernel_projection(layer: Any) -> bool:
    attention = layer.encoder_attn
    maps, norms = (attention.k_proj, attention.v_proj), (attention.key_norm, attention.value_norm)
    return norms == (None, None) and not any(isinstance(each, Call) for each in maps)


def _project(decoder: Decoder, states: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Keys and values (B, S, C) of each layer in the program's type, from the memory's states (B, S, C)."""
    states = states.to(decoder.embed_tokens.weight.dtype)
    with without_autocast(states.device):
        projected = [layer.encoder_attn.project(states) for layer in decoder.decoder_layers()]
    return [(_joined(each.key), _joined(each.value)) for each in projected]


def _joined(heads: Tensor) -> Tensor:
    return heads.transpose(1, 2).flatten(2).contiguous()  # (B, H, S, D) -> (B, S, C)


def _version(tensor: Tensor) -> int | None:
    """The number of changes in place; None: unknown."""
    return None if tensor.is_inference() else tensor._version


def _held_parts(stack: nn.Module) -> list[tuple[dict[str, Any], str, Any]]:
    """Each module, parameter and packed weight, with its owner and name."""
    return [
        (held, name, part)
        for module in stack.modules()
        for held in (module._modules, module._parameters, module.__dict__)
        for name, part in held.items()
        if held is not module.__dict__ or (isinstance(module, Packed) and name == "packed")
    ]
