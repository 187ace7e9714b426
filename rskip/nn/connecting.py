"""Gives the blocks of stacks their connections, and decides which of the library's normalisations stay."""

from __future__ import annotations

import copy
import re
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from os.path import commonprefix
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from rskip.connections import ConnectionSpec, Place, build_norm, build_stack_connection
from rskip.connections.connection import Connection, HostNeed, StackConnection
from rskip.formulas.spec import works_on
from rskip.nn.adapted import OperandPassage, Own, StatePassage
from rskip.nn.finding import Addition, Block, Stack, norm_kind
from rskip.nn.residuals import BRANCH_NAMES, LayerResiduals, build_layers
from rskip.nn.rewriting import Unprovable
from rskip.nn.spec_record import Removed, SpecRecord
from rskip.settings.errors import SettingError

_LAYERDROP = ("layerdrop", "speech_encoder_layerdrop")  # of a model or its config
AnyModule = TypeVar("AnyModule", bound=nn.Module)


@dataclass
class Connecting:
    """Gives the blocks of a model their connections.

    :param supplies: what the user does for the connection.
    :param undo: gets what takes the changes back.
    """

    model: nn.Module
    spec: ConnectionSpec
    supplies: HostNeed | Collection[HostNeed]
    undo: ExitStack
    removed: set[nn.Module] = field(default_factory=set)

    def connect(self, found: Sequence[Stack]) -> None:
        """Gives each block its connections, and keeps or removes the library's normalisations.

        :raises SettingError: the connection needs what these blocks can't give.
        """
        stacks, number, refused = list(found), 0, ""
        while number < len(stacks):
            stack = stacks[number]
            first, last = stack.blocks[0], stack.blocks[-1]
            eps = _eps(next((norm for each in first.additions for norm in (*each.norms, each.closing) if norm), None))
            layers, closing, by_operand = self._built(stack, stacks, eps)
            if not by_operand and (parts := _usable(stack)) != [stack]:
                stacks[number : number + 1] = parts
                refused = refused or _refused(stack)
                continue
            number += 1
            closes = stack.final is None and self.spec.closing_norm is not None
            closes = closes and all(block.post_norm for block in stack.blocks)  # by a normalisation in the last block
            needs_ends = closes or closing.opens or closing.closes
            if not by_operand and (needs_ends or _passes_more(layers, closing, first.features)):
                self._refuse_layerdrop(stack)
            for block, layer in zip(stack.blocks, layers, strict=True):
                for addition, connection in zip(block.additions, layer.connections(), strict=True):
                    self._settle_norms(block, addition, connection, by_operand)
                self._add(block.place, "residuals", as_in(block.module, layer))
                passage: type[Own] = OperandPassage if by_operand else StatePassage
                if by_operand and all(map(_only_adds, layer.connections())):
                    passage = Own  # in the library's order of additions
                block.place.__dict__["rskip_passage"] = passage
            self._add(first.place, "spec_record", as_in(first.module, SpecRecord(str(self.spec))))
            if any(True for _ in closing.parameters()):  # the block that uses them owns the parameters
                home = last if closing.closes else first
                if hasattr(home.place, "stack"):
                    kind = type(home.module).__name__
                    raise Unprovable(f"{kind} has a member stack, which is the name of one of rskip's")
                self._add(home.place, "stack", as_in(home.module, closing))
            norm = None
            if stack.final is not None:
                self._settle_final(stack, stack.final, eps)
            elif closes and self.spec.closing_norm is not None:
                norm = as_in(last.module, build_norm(self.spec.closing_norm, last.features, eps=eps))
            for block in stack.blocks:  # None in the others, because torch.compile doesn't notice a missing key
                block.place.__dict__["rskip_opening"] = closing if block is first else None
                block.place.__dict__["rskip_closing"] = closing if block is last else None
                self._add(block.place, "closing_norm", norm if block is last else None)
        if not stacks:
            expected = f"a connection that reads only x and f, since {refused}"
            raise SettingError.of_value("connection", str(self.spec), expected)

    def _built(
        self, stack: Stack, stacks: Sequence[Stack], eps: float
    ) -> tuple[list[LayerResiduals], StackConnection, bool]:
        """The connections of a stack, what opens and closes it, and whether they read the operands of the sums.

        :raises SettingError: the connection's state is more than x, and the model reads x between the blocks.
        """
        spec, first = self.spec, stack.blocks[0]
        closing = build_stack_connection(spec, first.features, eps=eps)

        def build(tower: Sequence[Stack], dim: int) -> list[LayerResiduals]:
            places = _places(stack, stacks, tower)
            return build_layers(spec, first.features, places, feature_dim=dim, eps=eps, host_supplies=self.supplies)

        layers = None
        if not (closing.opens or closing.closes) and works_on(spec, first.feature_dim):
            tower = [each for each in stacks if _in_one_tower(stack, each)]
            layers = build(tower, first.feature_dim)
            connections = [connection for layer in layers for connection in layer.connections()]
            sums = zip(connections, _sublayers(stack), strict=True)
            if all(_reads_operand(connection, addition, spec) for connection, addition in sums):
                return layers, closing, True
        if layers is None or first.feature_dim == 1 or len(tower) > 1:
            layers = build([stack], -1)
        if stack.between and _passes_more(layers, closing, first.features):
            read = f"since the model reads it between blocks: {stack.between[0]}"
            expected = f"a connection whose blocks pass on x, {read}"
            raise SettingError.of_value("connection", str(spec), expected)
        return layers, closing, False

    def _refuse_layerdrop(self, stack: Stack) -> None:
        """Raises SettingError if the model leaves out random blocks of the stack in training: each one must run."""
        names = stack.blocks[0].name.split(".")
        for depth in reversed(range(len(names))):
            around: Any = self.model.get_submodule(".".join(names[:depth]))
            places = (around, getattr(around, "config", None))
            found = (getattr(place, key, None) for place in places for key in _LAYERDROP)
            rate = next((each for each in found if each is not None), None)
            if rate:
                leaves_out = f"{type(around).__name__} leaves out random blocks in training, with layerdrop {rate}"
                advice = "set it to 0 in the config before you build the model, or choose another connection"
                expected = f"a connection whose blocks pass on x, since {leaves_out}"
                raise SettingError.of_value("connection", str(self.spec), expected, advice=advice)
            if rate is not None:
                return

    def _settle_norms(self, block: Block, addition: Addition, connection: Any, by_operand: bool) -> None:
        """Leaves the library's normalisations if they are the connection's too, and removes them otherwise."""
        if _is_kept(addition, connection, self.spec):
            connection.set_submodule(connection.input_slot, nn.Identity())
        else:
            for norm in addition.norms:
                self._remove(block.module, norm)
        slot, closing = connection.output_slot, addition.closing
        if closing is not None:
            same = slot is not None and norm_kind(closing, block.features, block.feature_dim) == self.spec.norm
            if same:
                connection.set_submodule(slot, nn.Identity() if by_operand else closing)
            if not (same and by_operand):
                self._remove(block.module, closing)

    def _settle_final(self, stack: Stack, final: nn.Module, eps: float) -> None:
        """Keeps the normalisation after a stack as the closing one, replaces it, or removes it.

        If a post-norm stack has one in addition to its blocks', post-norm connections keep it.
        """
        last, closing = stack.blocks[-1], self.spec.closing_norm
        if closing is None and is_pre_norm(stack):
            self._remove(self.model, final, marks=False)
        elif closing not in (None, norm_kind(final, last.features, last.feature_dim)) and final not in self.removed:
            self.removed.add(final)
            norm = build_norm(closing, last.features, last.feature_dim, eps=eps)
            self._replace(self.model, final, as_in(last.module, norm))

    def _remove(self, home: nn.Module, norm: nn.Module, *, marks: bool = True) -> None:
        """Puts an identity in the place of a normalisation. The first one marks the state."""
        if norm not in self.removed:
            names = [name for name, _ in norm.named_parameters(recurse=False)]
            self._replace(home, norm, as_in(home, Removed(names, marks=marks and not self.removed)))
            if marks:
                self.removed.add(norm)

    def _replace(self, home: nn.Module, old: nn.Module, new: nn.Module) -> None:
        """Puts a module in the place of another, under each of its names."""
        for owner in list(home.modules()):
            for name, each in list(owner._modules.items()):
                if each is old:
                    self._add(owner, name, new)

    def _add(self, owner: nn.Module, name: str, module: nn.Module | None) -> None:
        """Sets a member: a new one, or one that takes the place of a normalisation."""
        if name in owner._modules:
            self.undo.callback(owner._modules.__setitem__, name, owner._modules[name])
        else:
            self.undo.callback(owner._modules.pop, name, None)
        owner._modules[name] = module


def _usable(stack: Stack) -> list[Stack]:
    """The parts of a stack that can carry a state. The blocks between them, such as those with a projection, stay."""
    parts: list[Stack] = []
    goes_on = False
    for block in stack.blocks:
        if not (block.keeps_skip and block.ends):
            block.place.__dict__["rskip_passage"] = Own
        elif goes_on:
            parts[-1].blocks.append(block)
        else:
            parts.append(Stack([block], stack.between))
        goes_on = block.keeps_skip and block.ends
    if goes_on:
        parts[-1].final = stack.final
    return [stack] if parts and len(parts[0].blocks) == len(stack.blocks) else parts


def _refused(stack: Stack) -> str:
    """Why a block of the stack can't carry a state."""
    block = next(each for each in stack.blocks if not (each.keeps_skip and each.ends))
    what = "changes the skip" if not block.keeps_skip else "computes more after its last addition"
    what = "adds in a transposed form of its input" if block.turned else what
    return f"{block.name} ({type(block.module).__name__}) {what}"


def _reads_operand(connection: Connection, addition: Addition, spec: ConnectionSpec) -> bool:
    """Whether the state is x, and the branch reads x itself or the library's normalisation of it."""
    if not connection.passes_x:
        return False
    trial, generator = copy.deepcopy(connection), torch.Generator().manual_seed(0)
    for parameter in trial.parameters():  # at their initial values frac's read x too
        parameter.data = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
    kind = next((each.dtype for each in connection.parameters()), torch.float32)
    x = torch.randn(2, connection.features, *((2, 2) if connection.feature_dim == 1 else ()), dtype=kind)
    given, _ = trial.before(x)
    slot = trial.get_submodule(connection.input_slot or "")
    return given is x or _is_kept(addition, connection, spec) and torch.equal(given, slot(x))


def _only_adds(connection: Connection) -> bool:
    """Whether the connection computes x + f and nothing else, now that the library normalises."""
    shape = 2, connection.features, *((2, 2) if connection.feature_dim == 1 else ())
    x, f = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))
    return next(connection.parameters(), None) is None and torch.equal(connection.after(x, f), x + f)  # type: ignore[arg-type]


def _is_kept(addition: Addition, connection: Connection, spec: ConnectionSpec) -> bool:
    """Whether the library's normalisation of the branch's input is the connection's."""
    return connection.input_slot is not None and addition.reads is not None and addition.reads == spec.norm


def _passes_more(layers: Sequence[LayerResiduals], closing: StackConnection, features: int) -> bool:
    """Whether blocks pass on more than a tensor of x's form."""
    first: Any = next(iter(layers[0].children()))
    x = torch.zeros(1, 1, features)
    given, kept = first.connection.before(closing.enter(x))
    state = first.connection.after(kept, given)
    return not isinstance(state, Tensor) or state.dim() != x.dim()


def _places(stack: Stack, stacks: Sequence[Stack], tower: Sequence[Stack]) -> list[dict[str, Place]]:
    """The positions of a stack's connections, by block and branch.

    :param tower: the stacks over which sublayers are counted: the stages of a network, or only this one.
    """
    layers = _layer_kinds(stack)
    before = sum(len(_sublayers(each)) for each in tower[: tower.index(stack)])
    total = sum(len(_sublayers(each)) for each in tower)
    side = "decoder" if any(block.crosses or block.causal for block in stack.blocks) else "encoder"
    partner = _partner(stack, stacks)
    others = 0 if partner is None else len(_layers_of(partner))
    places: list[dict[str, Place]] = []
    number = before
    for block in stack.blocks:
        mine = {}
        for addition in block.additions:
            number += 1
            kind = _kind_of(addition)
            if layers is not None and kind != "block" and len(tower) == 1:
                count = len(layers)
                layer = -(-number * count // total)
                mine[addition.branch] = Place(side, kind, number, total, layer, count, others)
            else:
                mine[addition.branch] = Place("network", "block", number, total, number, total, others)
        places.append(mine)
    return places


def _sublayers(stack: Stack) -> list[Addition]:
    return [addition for block in stack.blocks for addition in block.additions]


def _kind_of(addition: Addition) -> str:
    return BRANCH_NAMES[re.sub(r"_\d+$", "", addition.branch)]


def _layers_of(stack: Stack) -> list[list[str]]:
    """The kinds of the branches of each layer. A layer is a block, or the blocks of one part of the stack."""
    names = [block.name.split(".") for block in stack.blocks]
    shared = len(commonprefix(names))
    layers: dict[str, list[str]] = {}
    for name, block in zip(names, stack.blocks, strict=True):
        layers.setdefault(".".join(name[: shared + 1]), []).extend(map(_kind_of, block.additions))
    return list(layers.values())


def _layer_kinds(stack: Stack) -> list[list[str]] | None:
    """The layers' branches if they are those of a Transformer, the same in each layer; otherwise None."""
    layers = _layers_of(stack)
    known = (["self_attn", "ffn"], ["self_attn", "encoder_attn", "ffn"], ["block"])
    return layers if layers[0] in known and all(each == layers[0] for each in layers) else None


def _in_one_tower(one: Stack, other: Stack) -> bool:
    """Whether two stacks are stages of one network, such as `layers.0.blocks` and `layers.1.blocks`."""
    names = [re.sub(r"\d+", "N", each.blocks[0].name) for each in (one, other)]
    alike = names[0] == names[1] or one.blocks[0].feature_dim == other.blocks[0].feature_dim == 1
    return one is other or (alike and one.blocks[0].number == other.blocks[0].number)


def _partner(stack: Stack, stacks: Sequence[Stack]) -> Stack | None:
    """The other stack of an encoder-decoder: the two are each other's only candidate in the closest parent."""

    def candidates(one: Stack) -> list[Stack]:
        """Of the stacks with cross-attention if this one has none, or the reverse, those in the closest parent."""
        shared = {
            other: len(commonprefix([one.name.split("."), other.name.split(".")]))
            for other in stacks
            if _crosses(other) != _crosses(one)
        }
        return [other for other, length in shared.items() if length == max(shared.values())]

    found = candidates(stack)
    return found[0] if len(found) == 1 and candidates(found[0]) == [stack] else None


def _crosses(stack: Stack) -> bool:
    return any(block.crosses for block in stack.blocks)


def is_pre_norm(stack: Stack) -> bool:
    return any(addition.norms for block in stack.blocks for addition in block.additions)


def as_in(block: nn.Module, module: AnyModule) -> AnyModule:
    """The module with the block's device, type and mode."""
    weight = next((each for each in block.parameters() if each.is_floating_point()), None)
    module.train(block.training)
    return module if weight is None else module.to(weight.device, weight.dtype)


def _eps(norm: Any) -> float:
    """The value that the normalisation adds to the variance."""
    eps = getattr(norm, "eps", getattr(norm, "variance_epsilon", None))
    return 1e-5 if eps is None else float(eps)
