"""The classes of adapted blocks: a library's block whose additions are joins of a passage."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

from torch import Tensor, nn

from rskip.connections import StackConnection, State
from rskip.nn.residuals import LayerResiduals, Residual
from rskip.nn.rewriting import NAME, Plan, rewritten
from rskip.settings.errors import SettingError


@dataclass(frozen=True)
class Route:
    """How the stream enters and leaves a block.

    :param position: of the stream among the arguments of its forward, and `name`, its name.
    :param slot: its position in the block's output, if that is a tuple.
    :param feature_dim: 1 if the stream is a feature map (N, C, H, W). States have features last.
    :param dims: number of the stream's dimensions.
    :param first: number of its first connection in the block.
    """

    position: int
    name: str
    slot: int | None
    feature_dim: int
    dims: int
    first: int


class Own:
    """The way through one call of a block, on which each addition is the library's own sum.

    The block's rewritten functions call it at the additions.

    :param x: the block's input. `given` is what the block computes with in place of it.
    """

    def __init__(self, block: ResidualStream, x: Tensor) -> None:
        self.block, self.given = block, x

    def at(self, number: int) -> Own:
        """The passage, with this connection next."""
        return self

    def join(self, left: Tensor, right: Tensor, skip: int) -> Tensor:
        """What takes the place of left + right, of which operand number `skip` is the skip."""
        return left + right

    def inner(self, left: Tensor, right: Tensor, skip: int) -> Tensor:
        """What takes the place of a sum whose result goes on to another sum of the same connection."""
        return self.join(left, right, skip)

    def unseen(self, left: Tensor, right: Tensor, skip: int) -> Tensor:
        """What takes the place of a sum that did not run on the example."""
        return left + right

    def end(self, output: Any) -> Any:
        """The block's output."""
        return output


class OperandPassage(Own):
    """Gives each connection the operands of the library's addition: y = connection(skip, f)."""

    def __init__(self, block: ResidualStream, x: Tensor) -> None:
        super().__init__(block, x)
        self.connections, self.number = block.residuals.connections(), 0
        self.skip: Tensor | None = None

    def at(self, number: int) -> Own:
        self.number = number
        return self

    def inner(self, left: Tensor, right: Tensor, skip: int) -> Tensor:
        self.skip = right if skip else left
        return left if skip else right

    def join(self, left: Tensor, right: Tensor, skip: int) -> Tensor:
        if self.skip is None:
            x, f = (right, left) if skip else (left, right)
        else:
            x, f, self.skip = self.skip, left + right, None
        connection = self.connections[self.number]
        self.number += 1
        y = connection.after(x, f)
        assert isinstance(y, Tensor)
        return y

    def unseen(self, left: Tensor, right: Tensor, skip: int) -> Tensor:
        raise RuntimeError(
            "an adapted block got an argument with which adapt did not run it, so an addition of it is unknown: pass "
            "adapt an example= with this argument"
        )


class StatePassage(OperandPassage):
    """Carries the state of the connections, while the library computes with the input of each branch.

    The first block of a stack opens it and the last block closes it, so the model around the blocks does not change.
    """

    def __init__(self, block: ResidualStream, x: Any) -> None:
        super().__init__(block, x)
        route, opening = block.rskip_route, block.__dict__["rskip_opening"]
        self.second, self.dims, self.is_whole = route.feature_dim == 1, route.dims, True
        state: Any = tuple(x) if isinstance(x, list) else x
        if self.second and isinstance(x, Tensor) and x.dim() == route.dims:
            state = x.movedim(1, -1)
        self.state: State = state if opening is None else opening.enter(state)
        self.given = self._next()
        self.shape = self.given.shape

    @property
    def is_plain(self) -> bool:
        """Whether the state is a tensor like the library's."""
        return isinstance(self.state, Tensor) and self.state.dim() == self.dims

    def _next(self) -> Tensor:
        given, self.kept = self.connections[self.number].before(self.state)
        return given.movedim(-1, 1) if self.second else given

    def at(self, number: int) -> Own:
        if number != self.number:
            raise RuntimeError(
                f"an adapted block passed from branch {self.number} to branch {number}: run every branch for each input"
            )
        return self

    def inner(self, left: Tensor, right: Tensor, skip: int) -> Tensor:
        self.is_whole = False
        return left if skip else right

    def join(self, left: Tensor, right: Tensor, skip: int) -> Tensor:
        f = (left if skip else right) if self.is_whole else left + right
        self.is_whole = True
        shape = f.shape
        f = f.view(self.shape) if shape != self.shape else f
        self.state = self.connections[self.number].after(self.kept, f.movedim(1, -1) if self.second else f)
        self.number += 1
        if self.number < len(self.connections):
            given = self._next()
        elif self.is_plain:
            assert isinstance(self.state, Tensor)
            given = self.state.movedim(-1, 1) if self.second else self.state
        else:  # a tensor of the library's shape, which the block's output does not contain
            return f.view(shape)
        return given if shape == self.shape else given.reshape(shape)

    def end(self, output: Any) -> Any:
        """The block's output, in which a state of other form takes the place of the stream."""
        closing: StackConnection | None = self.block.__dict__["rskip_closing"]
        norm = self.block._modules.get("closing_norm")
        all_ran = self.number == len(self.connections)  # else the block left out its last branches, and output is read
        if all_ran and self.is_plain and norm is None and (closing is None or not closing.closes):
            return output
        state: Any = self.state
        if closing is not None:
            state = closing.leave(state)
            state = state if norm is None else norm(state)
            state = state.movedim(-1, 1) if self.second else state
        elif isinstance(state, tuple):
            state = list(state)  # libraries record only the first tensor of a tuple
        elif self.is_plain and self.second:
            state = state.movedim(-1, 1)
        return replaced(output, self.block.rskip_route.slot, state)


class Several:
    """The ways of several streams through one call of a block."""

    def __init__(self, passages: Sequence[Own]) -> None:
        self.passages = passages

    def at(self, number: int) -> Own:
        """The passage of the stream that has this connection."""
        passage = next(each for each in reversed(self.passages) if each.block.rskip_route.first <= number)
        return passage.at(number - passage.block.rskip_route.first)

    def unseen(self, left: Tensor, right: Tensor, skip: int) -> Tensor:
        """What takes the place of a sum that did not run on the example."""
        return [passage.unseen(left, right, skip) for passage in self.passages][0]

    def end(self, output: Any) -> Any:
        """The block's output."""
        for passage in self.passages:
            output = passage.end(output)
        return output


class AdaptedPart(nn.Module):
    """A module on the way from a block to one of its additions, with rewritten methods."""

    library_class: ClassVar[type[nn.Module]]
    plan: ClassVar[Plan]

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return _new, (self.library_class, self.plan, type(self).__bases__[0]), self.__dict__


class ResidualStream(nn.Module):
    """The connections of one stream in a block.

    Members: `residuals`; in the first block `spec_record`; for connections that have them, `stack` in the first or last
    block, and `closing_norm` in the last block.
    """

    residuals: LayerResiduals
    rskip_route: Route
    rskip_passage: type[Own]
    rskip_returns_input: bool

    def _enter(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Own, tuple[Any, ...], dict[str, Any]]:
        """The passage, and the arguments with what it gives in place of the stream."""
        name, position, kind = self.rskip_route.name, self.rskip_route.position, self.rskip_passage
        if kind is Own and "residuals" in self._modules:  # connections that only add are called for their hooks
            kind = OperandPassage if any(each._forward_hooks for each in self.residuals.connections()) else Own
        if name in kwargs:
            passage = kind(self, kwargs[name])
            return passage, args, {**kwargs, name: passage.given}
        passage = kind(self, args[position])
        return passage, (*args[:position], passage.given, *args[position + 1 :]), kwargs

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any) -> None:
        if "residuals" in self._modules and any(key.startswith(prefix) for key in state_dict):
            for residual in self.residuals.children():
                assert isinstance(residual, Residual)
                if not residual.state_dict():  # the block has kept its normalisations
                    residual.mark_loaded()
        super()._load_from_state_dict(state_dict, prefix, *args)


class AdaptedBlock(AdaptedPart, ResidualStream):
    """The part of an adapted block that its library does not have: its first stream.

    A block through which several streams pass, such as text and image, has the others in `other_streams`.
    """

    def begin(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Own | Several, tuple[Any, ...], dict[str, Any]]:
        """The passage of all streams, and the arguments with what it gives in place of them."""
        first, args, kwargs = self._enter(args, kwargs)
        others = self._modules.get("other_streams")
        if others is None and not self.rskip_route.first:
            return first, args, kwargs
        passages = [first]
        for stream in () if others is None else others.children():
            assert isinstance(stream, ResidualStream)
            passage, args, kwargs = stream._enter(args, kwargs)
            passages.append(passage)
        return Several(passages), args, kwargs


def replaced(output: Any, slot: int | None, stream: Any) -> Any:
    """A block's output with another stream."""
    return stream if slot is None else type(output)((*output[:slot], stream, *output[slot + 1 :]))


@cache
def adapted_class(library_class: type[nn.Module], plan: Plan, base: type[AdaptedPart]) -> Any:
    """The class of an adapted block, or of a part of one, derived from the library's class.

    It keeps the library's name, because libraries use it to find blocks that stay on one device or that FSDP wraps.
    """
    members: dict[str, Any] = {"library_class": library_class, "plan": plan}
    for name, rewrite in plan:
        method = rewritten(library_class, name, rewrite)
        members[name] = _entered(method) if base is AdaptedBlock and name == "forward" else method
    members |= {"__module__": library_class.__module__, "__qualname__": library_class.__qualname__}
    return type(library_class.__name__, (base, library_class), members)


def _entered(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def forward(self: AdaptedBlock, *args: Any, **kwargs: Any) -> Any:
        try:
            passage, args, kwargs = self.begin(args, kwargs)
            return passage.end(method(self, *args, **{NAME: passage}, **kwargs))
        except RuntimeError as error:  # accelerate loads weights when a module's forward is called, not its `before`
            residuals = self._modules.get("residuals") or nn.Module()
            if any("_hf_hook" in vars(each) for each in residuals.modules()):
                advice = f"pass preload_module_classes=[{type(self).__name__!r}] to cpu_offload or dispatch_model"
                problem = "has connections whose weights accelerate offloads"
                raise SettingError("model", problem, advice=advice) from error
            raise

    return forward


def _new(library_class: type[nn.Module], plan: Plan, base: type[AdaptedPart]) -> Any:
    """An empty adapted module, which pickle fills."""
    kind = adapted_class(library_class, plan, base)  # type: ignore[arg-type]
    return kind.__new__(kind)
