"""Gives the blocks of stacks their connections, and decides which of the library's normalisations stay."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import replace
from os.path import commonprefix
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from rskip.connections import ConnectionSpec, Place, build_norm, build_stack_connection
from rskip.connections.connection import Connection, HostNeed, StackConnection
from rskip.formulas.spec import works_on
from rskip.nn.finding import Addition, Block, Stack, norm_kind
from rskip.nn.proving import Own
from rskip.nn.residuals import BRANCH_NAMES, LayerResiduals, build_layers
from rskip.nn.rewriting import NotRewritable
from rskip.nn.spec_record import Removed, SpecRecord
from rskip.settings.errors import SettingError

AnyModule = TypeVar("AnyModule", bound=nn.Module)


def connect(
    model: nn.Module,
    stacks: Sequence[Stack],
    spec: ConnectionSpec,
    supplies: HostNeed | Collection[HostNeed],
    undo: ExitStack,
) -> None:
    """Gives each block its connections, and keeps or removes the library's normalisations.

    :raises SettingError: the connection needs what these blocks can't give.
    """
    removed: set[int] = set()
    stacks, number = list(stacks), 0
    while number < len(stacks):
        stack = stacks[number]
        first, last = stack.blocks[0], stack.blocks[-1]
        eps = _eps(next((norm for each in first.additions for norm in _norms(each)), None))
        layers, closing, by_operand = _built(spec, stack, stacks, eps, supplies)
        if not by_operand and (parts := _usable(stack, spec)) != [stack]:
            stacks[number : number + 1] = parts
            continue
        number += 1
        for block, layer in zip(stack.blocks, layers, strict=True):
            for addition, connection in zip(block.additions, layer.connections(), strict=True):
                _settle_norms(block, addition, connection, spec, by_operand, removed, undo)
            _add(block.module, "residuals", as_in(block.module, layer), undo)
            block.module.__dict__["rskip_route"] = replace(block.module.__dict__["rskip_route"], by_operand=by_operand)
            if by_operand and all(map(_only_adds, layer.connections())):
                block.module.__dict__["rskip_probe"] = Own  # in the library's order of additions
        _add(first.module, "spec_record", as_in(first.module, SpecRecord(str(spec))), undo)
        if any(True for _ in closing.parameters()):  # the block that uses them owns the parameters
            home = last if closing.closes else first
            if hasattr(home.module, "stack"):
                kind = type(home.module).__name__
                raise NotRewritable(f"{kind} has a member stack, which is the name of one of rskip's")
            _add(home.module, "stack", as_in(home.module, closing), undo)
        norm = None
        if stack.final is not None:
            _settle_final(model, stack, spec, eps, removed, undo)
        elif spec.closing_norm is not None and all(block.post_norm for block in stack.blocks):
            norm = as_in(last.module, build_norm(spec.closing_norm, last.features, eps=eps))
        for block in stack.blocks:  # None in the others, because torch.compile doesn't notice a missing key
            block.module.__dict__["rskip_opening"] = closing if block is first else None
            block.module.__dict__["rskip_closing"] = closing if block is last else None
            _add(block.module, "closing_norm", norm if block is last else None, undo)


def _built(
    spec: ConnectionSpec,
    stack: Stack,
    stacks: Sequence[Stack],
    eps: float,
    supplies: HostNeed | Collection[HostNeed],
) -> tuple[list[LayerResiduals], StackConnection, bool]:
    """The connections of a stack, what opens and closes it, and whether they read the operands of the sums.

    :raises SettingError: the connection's state is more than x, and the model reads x between the blocks.
    """
    first = stack.blocks[0]
    closing = build_stack_connection(spec, first.features, eps=eps)
    second = first.feature_dim == 1
    if not second or works_on(spec, 1):
        places = _places(stack, stacks, [each for each in stacks if _in_one_tower(stack, each)])
        layers = build_layers(
            spec, first.features, places, feature_dim=first.feature_dim, eps=eps, host_supplies=supplies
        )
        if not (closing.opens or closing.closes) and all(
            _reads_operand(connection, addition, spec)
            for block, layer in zip(stack.blocks, layers, strict=True)
            for addition, connection in zip(block.additions, layer.connections(), strict=True)
        ):
            return layers, closing, True
    layers = build_layers(spec, first.features, _places(stack, stacks, [stack]), eps=eps, host_supplies=supplies)
    if stack.between and _passes_more(layers, closing, first.features):
        expected = f"a connection whose blocks pass on x, since the model reads it between blocks: {stack.between[0]}"
        raise SettingError.of_value("connection", str(spec), expected)
    return layers, closing, False


def _usable(stack: Stack, spec: ConnectionSpec) -> list[Stack]:
    """The parts of a stack that can carry a state. The blocks between them, such as those with a projection, stay.

    :raises SettingError: no block can carry one.
    """
    parts: list[Stack] = []
    goes_on = False
    for block in stack.blocks:
        if not (block.keeps_skip and block.ends):
            block.module.__dict__["rskip_probe"] = Own
        elif goes_on:
            parts[-1].blocks.append(block)
        else:
            parts.append(Stack([block], stack.between))
        goes_on = block.keeps_skip and block.ends
    if not parts:
        block = stack.blocks[0]
        what = "computes more after its last addition" if block.keeps_skip else "changes the skip"
        expected = f"a connection that reads only x and f, since {block.name} ({type(block.module).__name__}) {what}"
        raise SettingError.of_value("connection", str(spec), expected)
    if goes_on:
        parts[-1].final = stack.final
    return [stack] if len(parts[0].blocks) == len(stack.blocks) else parts


def _reads_operand(connection: Connection, addition: Addition, spec: ConnectionSpec) -> bool:
    """Whether the state is x, and the branch reads x itself or the library's normalisation of it."""
    if not connection.passes_x:
        return False
    kind = next((each.dtype for each in connection.parameters()), torch.float32)
    x = torch.randn(2, connection.features, *((2, 2) if connection.feature_dim == 1 else ()), dtype=kind)
    given, _ = connection.before(x)
    return given is x or _is_kept(addition, connection, spec) and torch.equal(given, _slot(connection)(x))


def _only_adds(connection: Connection) -> bool:
    """Whether the connection computes x + f and nothing else, now that the library normalises."""
    shape = 2, connection.features, *((2, 2) if connection.feature_dim == 1 else ())
    x, f = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))
    return next(connection.parameters(), None) is None and torch.equal(connection.after(x, f), x + f)  # type: ignore[arg-type]


def _slot(connection: Connection) -> nn.Module:
    return connection.get_submodule(connection.input_slot or "")


def _is_kept(addition: Addition, connection: Connection, spec: ConnectionSpec) -> bool:
    """Whether the library's normalisation of the branch's input is the connection's."""
    return connection.input_slot is not None and addition.reads is not None and addition.reads == spec.norm


def _settle_norms(
    block: Block,
    addition: Addition,
    connection: Any,
    spec: ConnectionSpec,
    by_operand: bool,
    removed: set[int],
    undo: ExitStack,
) -> None:
    """Leaves the library's normalisations if they are the connection's too, and removes them otherwise."""
    if _is_kept(addition, connection, spec):
        _set_slot(connection, connection.input_slot, nn.Identity())
    else:
        for norm in addition.norms:
            _remove(block.module, norm, removed, undo)
    closing = addition.closing
    if closing is None:
        return
    slot = connection.output_slot
    same = slot is not None and norm_kind(closing, block.features, block.feature_dim) == spec.norm
    if same and by_operand:
        _set_slot(connection, slot, nn.Identity())
        return
    if same:
        _set_slot(connection, slot, closing)
    _remove(block.module, closing, removed, undo)


def _set_slot(connection: nn.Module, slot: str, norm: nn.Module) -> None:
    path, _, name = slot.rpartition(".")
    connection.get_submodule(path)._modules[name] = norm


def _remove(home: nn.Module, norm: nn.Module, removed: set[int], undo: ExitStack) -> None:
    """Puts an identity in the place of a normalisation."""
    if id(norm) in removed:
        return
    names = [name for name, _ in norm.named_parameters(recurse=False)]
    _replace(home, norm, as_in(home, Removed(names, marks=not removed)), undo)
    removed.add(id(norm))


def _replace(home: nn.Module, old: nn.Module, new: nn.Module, undo: ExitStack) -> None:
    """Puts a module in the place of another, under each of its names."""
    for owner in list(home.modules()):
        for name, each in list(owner._modules.items()):
            if each is old:
                _add(owner, name, new, undo)


def _add(owner: nn.Module, name: str, module: nn.Module | None, undo: ExitStack) -> None:
    """Sets a member: a new one, or one that takes the place of a normalisation."""
    if name in owner._modules:
        undo.callback(owner._modules.__setitem__, name, owner._modules[name])
    else:
        undo.callback(owner._modules.pop, name, None)
    owner._modules[name] = module


def _settle_final(
    model: nn.Module, stack: Stack, spec: ConnectionSpec, eps: float, removed: set[int], undo: ExitStack
) -> None:
    """Keeps the normalisation after a stack as the closing one, replaces it, or removes it.

    If a post-norm stack has one in addition to its blocks', post-norm connections keep it.
    """
    last, final = stack.blocks[-1], stack.final
    assert final is not None
    kind = norm_kind(final, last.features, last.feature_dim)
    if spec.closing_norm is None and is_pre_norm(stack):
        _remove(model, final, removed | {0}, undo)
    elif spec.closing_norm is not None and spec.closing_norm != kind and id(final) not in removed:
        removed.add(id(final))
        norm = as_in(last.module, build_norm(spec.closing_norm, last.features, last.feature_dim, eps=eps))
        _replace(model, final, norm, undo)


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
    return one is other or names[0] == names[1] or one.blocks[0].feature_dim == other.blocks[0].feature_dim == 1


def _partner(stack: Stack, stacks: Sequence[Stack]) -> Stack | None:
    """The other stack of an encoder-decoder: the two are each other's only candidate in the closest parent."""
    found = _candidates(stack, stacks)
    return found[0] if len(found) == 1 and _candidates(found[0], stacks) == [stack] else None


def _candidates(stack: Stack, stacks: Sequence[Stack]) -> list[Stack]:
    """Of the stacks with cross-attention if this one has none, or the reverse, those in the closest parent."""
    crosses = any(block.crosses for block in stack.blocks)
    shared = {
        other: len(commonprefix([stack.name.split("."), other.name.split(".")]))
        for other in stacks
        if any(block.crosses for block in other.blocks) != crosses
    }
    return [other for other, length in shared.items() if length == max(shared.values())]


def is_pre_norm(stack: Stack) -> bool:
    return any(addition.norms for block in stack.blocks for addition in block.additions)


def _norms(addition: Addition) -> list[nn.Module]:
    return [*addition.norms, *([] if addition.closing is None else [addition.closing])]


def as_in(block: nn.Module, module: AnyModule) -> AnyModule:
    """The module with the block's device, type and mode."""
    weight = next((each for each in block.parameters() if each.is_floating_point()), None)
    module.train(block.training)
    return module if weight is None else module.to(weight.device, weight.dtype)


def _eps(norm: Any) -> float:
    """The value that the normalisation adds to the variance."""
    eps = getattr(norm, "eps", getattr(norm, "variance_epsilon", None))
    return 1e-5 if eps is None else float(eps)
