"""A model's residual blocks in the order of computation, numbered as in the papers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from rskip.connections import Connection, StackConnection, State, name_of

_SUFFIX = "_connection"
_ORDER = ("self_attn", "encoder_attn", "ffn")  # within a Transformer layer

OnCall = Callable[["Block", Tensor, Tensor, Tensor], None]
OnStep = Callable[["Block", State, Tensor, State], None]


@dataclass(frozen=True)
class Block:
    """A residual block, identified by its connection.

    :param number: counted from 1 through the whole model (rSkip Fig. 3, SAS Fig. 4: blocks 19 to 36 of 54 are the
        middle stage).
    :param stage: group of blocks with one shape: layer1, layer2, layer3 on images; encoder, decoder on text.
    :param name: name of the module, such as layer2.0 or encoder.layers.0.ffn.
    :param sublayer: self_attn, encoder_attn or ffn; empty on images.
    """

    number: int
    stage: str
    name: str
    sublayer: str
    connection: Connection = field(repr=False, compare=False)

    @property
    def place(self) -> dict[str, int | str]:
        """The block's columns in a measurement."""
        return {"block": self.number, "stage": self.stage, "name": self.name, "sublayer": self.sublayer}


def residual_blocks(model: nn.Module, *, streams: bool = False) -> tuple[Block, ...]:
    """All residual blocks of the model.

    :param streams: whether the connections may pass on more than x.
    :raises ValueError: it has none, or its connections pass on more than x.
    """
    found = [(name, module) for name, module in model.named_modules() if isinstance(module, Connection)]
    if not found:
        raise ValueError(f"{type(model).__name__} has no residual blocks: expected a model built with a connection")
    more = [name_of(connection) for _, connection in found if not connection.passes_x]
    if more and not streams:
        expected = "expected a model whose blocks combine one x and one F(x)"
        raise ValueError(f"{more[0]} passes on more than x: {expected}; try `rskip analyse streams` or `depth`")
    first_of_parent: dict[str, int] = {}

    def place(index: int) -> tuple[int, int]:
        parent, _, member = found[index][0].rpartition(".")
        sublayer = member.removesuffix(_SUFFIX)
        return first_of_parent.setdefault(parent, index), _ORDER.index(sublayer) if sublayer in _ORDER else -1

    blocks = []
    for number, index in enumerate(sorted(range(len(found)), key=place), start=1):
        path, connection = found[index]
        name = path.removesuffix(".connection").removesuffix(_SUFFIX)
        sublayer = name.rpartition(".")[2] if path.endswith(_SUFFIX) else ""
        blocks.append(Block(number, path.partition(".")[0], name, sublayer, connection))
    return tuple(blocks)


@contextmanager
def watching(blocks: Sequence[Block], on_call: OnCall) -> Iterator[None]:
    """A context in which `on_call(block, x, f, y)` is called whenever a connection has computed y from x and f."""

    def hook(block: Block) -> Callable[..., Tensor]:
        def told(_: nn.Module, inputs: tuple[Tensor, Tensor], y: Tensor) -> Tensor:
            y = y.clone() if y._is_view() else y  # its gradient survives an operation in place, as in torchvision
            on_call(block, inputs[0], inputs[1], y)
            return y

        return told

    handles = [block.connection.register_forward_hook(hook(block)) for block in blocks]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def watching_states(
    blocks: Sequence[Block], stacks: Sequence[StackConnection], on_enter: Callable[[], None], on_step: OnStep
) -> Iterator[None]:
    """A context in which `on_step(block, state, f, new)` is called after each block, whatever its state consists of.

    `on_enter()` is called where a stack begins. PyTorch has hooks for `forward` only, so the methods are wrapped.
    """
    states: dict[int, State] = {}

    def wrapped(block: Block) -> dict[str, Callable[..., Any]]:
        before, after = block.connection.before, block.connection.after

        def noting(state: State) -> tuple[Tensor, State]:
            states[block.number] = state
            return before(state)

        def telling(kept: State, f: Tensor) -> State:
            new = after(kept, f)
            on_step(block, states.pop(block.number), f, new)
            return new

        return {"before": noting, "after": telling}

    def entered(enter: Callable[[Tensor], State]) -> Callable[[Tensor], State]:
        def telling(x: Tensor) -> State:
            on_enter()
            return enter(x)

        return telling

    with ExitStack() as stack:
        for module, methods in [
            *((block.connection, wrapped(block)) for block in blocks),
            *((each, {"enter": entered(each.enter)}) for each in stacks),
        ]:
            vars(module).update(methods)
            for name in methods:
                stack.callback(vars(module).pop, name)
        yield


def at(tensor: Tensor, mask: Tensor | None) -> Tensor:
    """The positions (P, C) of a tensor (B, T, C) where the mask (B, T) is true; without a mask, the tensor itself."""
    return tensor if mask is None else tensor[mask]
