"""Programs in which PyTorch's modules compute what the kernels can't. C features, R rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from rskip.connections import Connection, FormulaStack, StackConnection, State
from rskip.connections.first_gain import kind_of
from rskip.connections.norms import RMSNorm
from rskip.cpu.int8 import Int8Linear
from rskip.cpu.library import Library
from rskip.cpu.linear import PackedLinear
from rskip.cpu.program import Program, Programs, Room, Steps
from rskip.cpu.structures import RELU, TANH, Operations
from rskip.formulas import Norm
from rskip.kernel_forms import GatedSum, NormalisedSum
from rskip.transformer.value_residual import FirstValues


class ModuleProgram(Program):
    """A sequence of parts: kernels that run in sequence, or a module.

    :param like: a tensor of the rows' type.
    """

    activations: ClassVar[dict[Any, int]] = {**Program.activations, functional.relu: RELU, torch.tanh: TANH}

    def __init__(self, library: Library, like: Tensor, rows: int) -> None:
        super().__init__(library, like, rows)
        self._parts: list[Callable[[int, int], None]] = []  # called with the numbers of sentences and beams
        self._tables: list[tuple[Operations, int]] = []  # those of the parts that are kernels, with their work per row
        self._passes_more = False  # whether a connection passes on more than x, which is stored here during a run
        self._passed: State | None = None
        self._first_values = FirstValues()

    def run(self, sentences: int, beams: int) -> None:
        self._end_part()
        self._passed, self._first_values = None, FirstValues()
        for part in self._parts:
            part(sentences, beams)

    def whole(self) -> tuple[Operations, int] | None:
        self._end_part()
        return self._tables[0] if len(self._parts) == len(self._tables) == 1 else None

    def has_kernel(self, norm: nn.Module) -> bool:
        kind = kind_of(norm)
        return issubclass(kind, RMSNorm) or (issubclass(kind, nn.LayerNorm) and norm.bias is not None)

    def enter(self, stack: StackConnection, room: Room) -> None:

        def compute(rows: int) -> None:
            x = room.x[:rows]
            passed = stack.enter(x)
            if isinstance(passed, Tensor) and passed.shape == x.shape:
                x.copy_(passed)
            else:
                self._passed = passed

        if isinstance(stack, FormulaStack) and isinstance(stack.formula.enters, Norm):
            self.norm(stack.get_submodule(stack.formula.enters.name), room.x)
        elif stack.opens:
            self._put_part(compute)

    def leave(self, stack: StackConnection, room: Room) -> None:

        def compute(rows: int) -> None:
            room.x[:rows] = stack.leave(room.x[:rows] if self._passed is None else self._passed)
            self._passed = None

        if self._passes_more or stack.closes:
            self._put_part(compute)

    def form(self, connection: Connection) -> NormalisedSum | GatedSum | None:
        """As `Program.form`; None too if the form has maps that are not packed, or norms without a kernel."""
        stated = connection.kernel_form()
        if isinstance(stated, NormalisedSum):
            maps, norms = list(stated.added or ()), [*stated.norms, stated.branch_norm, stated.output_norm]
            if len({(kind_of(norm), norm.eps) for norm in stated.norms}) > 1:
                return None
        elif isinstance(stated, GatedSum):
            gates = [gate for gate in (stated.alpha, stated.beta, stated.gamma) if gate is not None]
            maps = [each for gate in gates for each in (list(gate.children()) or [gate])]
            norms = [stated.norm, stated.branch_norm]
        else:
            return None
        has_kernels = all(map(_is_packed, maps)) and all(norm is None or self.has_kernel(norm) for norm in norms)
        return stated if has_kernels else None

    def other_branch_input(self, connection: Connection, room: Room) -> Tensor:

        def compute(rows: int) -> None:
            given, self._passed = connection.before(room.x[:rows] if self._passed is None else self._passed)
            room.given[:rows] = given

        given: Tensor = room.given
        if not connection.passes_x:
            self._passes_more = True
            self._put_part(compute)
            return given
        if connection.reads_x:
            return room.x
        self.other(connection.branch_input, given, room.x)
        return given

    def other_join(self, connection: Connection, room: Room) -> None:

        def compute(rows: int) -> None:
            assert self._passed is not None
            self._passed = connection.after(self._passed, room.f[:rows].clone())  # f is overwritten by the next branch

        if not connection.passes_x:
            self._put_part(compute)
        else:
            self.other(connection, room.x, room.x, room.f)

    def other(self, compute: Callable[..., Tensor], output: Tensor, *inputs: Tensor) -> None:

        def of_rows(rows: int) -> None:
            output[:rows] = compute(*(each[:rows] for each in inputs))

        self._put_part(of_rows)

    def other_norm_heads(self, attention: Any, norm: nn.Module, x: Tensor) -> None:
        self.other(lambda rows: norm(rows.unflatten(-1, (attention.heads, -1))).flatten(-2), x, x)

    def mix_values(self, value_residual: Any, room: Room) -> None:
        self.other(lambda own: value_residual(own.clone(), self._first_values), room.value, room.value)

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


class CpuStack(Programs[Steps]):
    """Runs a stack of modules as programs.

    If modules or parameters of the stack are replaced or packed again, build a new one.
    """

    def __init__(self, stack: nn.Module, library: Library, build: Callable[[int], Steps]) -> None:
        super().__init__(build)
        self.library = library
        self._parts = _parts(stack)
        self._values = [(each, each.data_ptr(), _version(each)) for each in stack.parameters()]

    def current(self) -> bool:
        """Whether modules, parameters and packed weights are still the same objects with the same values."""
        for held, name, part in self._parts:
            if held.get(name) is not part:
                return False
        return all(each.data_ptr() == address and _version(each) == version for each, address, version in self._values)

    def program(self, rows: int) -> Steps:
        with torch.inference_mode(False):  # so that callers outside of inference mode can use it too
            return super().program(rows)


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
