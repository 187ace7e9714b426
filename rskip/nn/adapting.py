"""Replaces the residual additions in any model by a connection."""

from __future__ import annotations

import inspect
import re
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from os.path import commonprefix
from types import CodeType
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from rskip.connections import ConnectionSpec, Place, build_norm, build_stack_connection, parse_connection
from rskip.connections.connection import Connection, HostNeed, StackConnection
from rskip.formulas.spec import works_on
from rskip.nn.adapted import AdaptedBlock, AdaptedPart, Route, adapted_class
from rskip.nn.example_inputs import example_inputs
from rskip.nn.finding import Addition, Block, Stack, find_missed, find_stacks, norm_kind
from rskip.nn.hosts import timm_model, transformers_model
from rskip.nn.hosts.torch_layers import turn_off_fast_path
from rskip.nn.proving import Branch, Own, Skip, Unproven, compare, measured, undisturbed
from rskip.nn.residuals import BRANCH_NAMES, LayerResiduals, build_layers
from rskip.nn.rewriting import Hop, NotRewritable, Plan, changes, hops, plans, unseen
from rskip.nn.spec_record import Removed, SpecRecord
from rskip.nn.tracing import Trace, trace
from rskip.settings.errors import SettingError

Model = TypeVar("Model", bound=nn.Module)
AnyModule = TypeVar("AnyModule", bound=nn.Module)
Guards = dict[CodeType, set[tuple[int, int]]]
YOURSELF = "put the connections into the blocks yourself (docs/own_model.md)"  # the advice for what `adapt` refuses


@dataclass(frozen=True)
class Adaptation:
    """What `adapt` did to a model.

    :param spec: the connection.
    :param blocks: the classes of the blocks that were adapted, and how many of each.
    :param stacks: of each stack the container's name, the blocks' number and class, and the branches, such as
        `h: 12 × GPT2Block (attention, ffn)`.
    :param own: the connection that the model had, such as `prenorm+ln`; None if its blocks differ.
    :param kept: parameters that were kept under another name, new name to old name.
    :param new: names of parameters that the model did not have. They have the family's initial values.
    :param dropped: names of the removed parameters.
    :param unclosed: stacks of pre-norm blocks whose output no normalisation reads.
    :param unchanged: containers of blocks that look residual and were not found, with their number and class.
    """

    spec: str
    blocks: dict[str, int]
    stacks: tuple[str, ...]
    own: str | None
    kept: dict[str, str]
    new: tuple[str, ...]
    dropped: tuple[str, ...]
    unclosed: tuple[str, ...]
    unchanged: tuple[str, ...]

    def __str__(self) -> str:
        """A summary: connection and blocks, then the parameters' names, where `*` stands for layer numbers."""
        moved = [f"{_without_numbers(old)} -> {_without_numbers(new)}" for new, old in self.kept.items()]
        lines = [f"{self.spec} in {stack}" for stack in self.stacks]
        lines += [f"kept under a new name: {names}" for names in dict.fromkeys(moved)]
        lines += [f"new: {name}" for name in dict.fromkeys(map(_without_numbers, self.new))]
        lines += [f"dropped: {name}" for name in dict.fromkeys(map(_without_numbers, self.dropped))]
        lines += [
            f"after {name or 'the blocks'} the model has no final normalisation"
            for name in dict.fromkeys(map(_without_numbers, self.unclosed))
        ]
        lines += [f"unchanged, since no residual additions were found: {stack}" for stack in self.unchanged]
        return "\n".join(lines)


def _without_numbers(name: str) -> str:
    """The name with `*` for numbers, except for those inside a connection."""
    outside, connection, inside = name.partition(".connection.")
    return re.sub(r"\.\d+(?=\.|$)", ".*", outside) + connection + inside


def adapt(
    model: Model,
    connection: str | ConnectionSpec,
    *,
    blocks: str | type[nn.Module] | Collection[type[nn.Module]] | None = None,
    example: Any = None,
    host_supplies: HostNeed | Collection[HostNeed] = (),
    dry_run: bool = False,
) -> Model:
    """Replaces the residual additions in the blocks of a model, in place.

    It runs the model once on an example and finds each sum of a value x with what follows from x through a linear map.
    It then changes these sums in the source of the blocks' functions, and nothing else, and proves that: with the
    library's own sums, outputs and gradients stay bit-equal; without the branches, a block returns its input; and
    without the skips, its output doesn't depend on its input. A model that fails one of these is refused and unchanged.

    Trained weights stay. So do the blocks' normalisations, under their own names, if the connection has one of the same
    kind in the same position; the others are removed. New parameters have the family's initial values.
    `adaptation(model)` lists what was kept and what is new. With the connection that the model has already, such as
    `prenorm+ln` in a GPT-2, outputs stay bit-equal.

    :param model: any model of PyTorch modules, built, with its source at hand.
    :param connection: connection string such as `2rskip+ln`.
    :param blocks: name of the module that contains the blocks, such as `transformer.h`, or their class or classes;
        None: all blocks of the model.
    :param example: what the model takes, for the run: a tensor, a tuple of arguments, or a mapping from names to
        arguments; None: tokens, images or features, whichever the model takes.
    :param host_supplies: what you do for the connection yourself, out of HOST_NEEDS (`build_connection`).
    :param dry_run: print which lines would change, and change nothing.
    :returns: the same model.
    :raises SettingError: the model has no residual block, or they can't be rewritten, proven or take the connection.
        The model is then unchanged.
    """
    if not isinstance(model, nn.Module):
        raise SettingError.of_value("model", model, "a PyTorch model (torch.nn.Module), built")
    spec = connection if isinstance(connection, ConnectionSpec) else parse_connection(connection)
    _check(model)
    transformers_model.check_model(model, str(spec))
    wanted = _wanted(model, blocks)
    with undisturbed(model), _as_mistakes():
        run, found, guards = _found(model, example, wanted)
        if dry_run:
            print("\n".join(changes(_plans(found, guards))))
            return model
        before = {name: id(each) for name, each in model.named_parameters()}
        with ExitStack() as undo:
            alive = list(model.parameters())  # so that a new one can't take over the id of one
            turn_off_fast_path(model, undo)
            _install(found, _plans(found, guards), undo, run, model)
            with torch.device("cpu"):
                _connect(model, found, spec, host_supplies, undo)
            if not _on_meta(model):
                _try(model, run, spec)
            undo.pop_all()
        del alive
    transformers_model.finish(model, str(spec))
    timm_model.finish(model)
    old = {key: name for name, key in before.items()}
    names = {id(each): name for name, each in model.named_parameters()}
    after = model.__dict__["rskip_adaptation"] = Adaptation(
        str(spec),
        dict(Counter(type(block.module).__name__ for stack in found for block in stack.blocks)),
        tuple(map(_described, found)),
        own_connection(found),
        kept={name: old[key] for key, name in names.items() if key in old and old[key] != name},
        new=tuple(name for key, name in names.items() if key not in old),
        dropped=tuple(name for key, name in old.items() if key not in names),
        unclosed=tuple(each.name for each in found if each.final is None and _is_pre_norm(each)),
        unchanged=(
            *(f"{block.name} ({type(block.module).__name__})" for block in _left(found)),
            *(_unchanged_stacks(model) if blocks is None else ()),
        ),
    )
    if after.unchanged:
        warnings.warn(f"adapt left stacks of blocks unchanged: {', '.join(after.unchanged)}", stacklevel=2)
    return model


def _left(stacks: Sequence[Stack]) -> Iterator[Block]:
    """The blocks that keep the library's sums, since they can't carry the connection's state."""
    for stack in stacks:
        yield from (block for block in stack.blocks if "residuals" not in block.module._modules)


def adaptation(model: nn.Module) -> Adaptation | None:
    """What `adapt` did to this model, or None if it is not adapted."""
    return model.__dict__.get("rskip_adaptation")


def _check(model: nn.Module) -> None:
    """Raises SettingError for models that can't be adapted in this form."""
    for name, module in model.named_modules():
        where = f" in {name}" if name else ""
        if isinstance(module, AdaptedPart):
            advice = "build the model again, and adapt that one"
            raise SettingError("model", f"has blocks that are already adapted{where}", advice=advice)
        if isinstance(module, torch.jit.ScriptModule):
            raise SettingError("model", f"is scripted{where}, so its source is gone", advice="adapt it, then script it")
        if hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None:
            raise SettingError("model", f"is compiled{where}", advice="adapt it, then call torch.compile")
        stored = (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False))
        if any("weight" in key and not each.is_floating_point() and not each.is_complex() for key, each in stored):
            advice = "adapt and train it in floating point, then quantise it"
            raise SettingError("model", f"is quantised{where}", advice=advice)


def _wanted(model: nn.Module, blocks: Any) -> Callable[[nn.Module], bool] | None:
    """Whether a module is one of the blocks that the user names."""
    if blocks is None:
        return None
    if isinstance(blocks, str):
        try:
            container = model.get_submodule(blocks)
        except AttributeError:
            known = [name for name, each in model.named_modules() if isinstance(each, (nn.ModuleList, nn.Sequential))]
            expected = f"a module of the model, such as {', '.join(known[:5])}"
            raise SettingError.of_value("blocks", blocks, expected) from None
        ids = {id(each) for each in container.children()}
        return lambda module: id(module) in ids
    kinds = (blocks,) if isinstance(blocks, type) else tuple(blocks)
    if not kinds or not all(isinstance(each, type) and issubclass(each, nn.Module) for each in kinds):
        raise SettingError.of_value("blocks", blocks, "a module's name, or classes of modules")
    return lambda module: isinstance(module, kinds)


def _found(
    model: nn.Module, example: Any, wanted: Callable[[nn.Module], bool] | None
) -> tuple[Callable[[], Any], list[Stack], Guards]:
    """A run of the model, its stacks of blocks, and the sums that must not run.

    :raises SettingError: the model takes none of the examples, or has no residual block.
    """
    model.eval()
    failed: Exception | None = None
    for args, kwargs in example_inputs(model, example):

        def run(args: tuple[Any, ...] = args, kwargs: dict[str, Any] = kwargs) -> Any:
            return model(*args, **kwargs)

        try:
            with ExitStack() as undo:
                turn_off_fast_path(model, undo)
                traced = trace(model, run)
        except Exception as error:
            failed = failed or error
            continue
        stacks = find_stacks(model, traced, wanted)
        if not stacks:
            advice = f"name them with blocks=, give an example= that reaches them, or {YOURSELF}"
            problem = f"({type(model).__qualname__}) has no block whose residual additions can be found"
            raise SettingError("model", problem, advice=advice)
        _check_blocks(stacks)
        missed, guards = _unseen(traced, stacks)
        missed = missed or (find_missed(traced, stacks) if wanted is None else None)
        if missed is not None:
            problem = f"has an addition at {missed} that is not part of a block that adapt found"
            advice = f"pass an example= that runs it, name the blocks with blocks=, or {YOURSELF}"
            raise SettingError("model", problem, advice=advice)
        return run, stacks, guards
    reason = f"{type(failed).__name__}: {str(failed).splitlines()[0][:150] if str(failed) else ''}"
    what = "does not run on example" if example is not None else "does not run on tokens, images or features"
    raise SettingError("model", f"{what} ({reason})", advice="pass example=, arguments that it takes") from failed


def _unseen(traced: Trace, stacks: Sequence[Stack]) -> tuple[str | None, Guards]:
    """Where a block adds to a skip under a condition that the example did not meet, and the places for guards."""
    ran: dict[CodeType, set[tuple[int, int]]] = {}
    for step in traced.steps:
        for spot in step.spots[:1]:
            ran.setdefault(spot.code, set()).add(spot.end)
    guards: Guards = {}
    checked = set()
    for stack in stacks:
        for _, sums in _chains(stack):
            for _, side, way in sums:
                hop = way[-1]
                code = hop.function.__code__
                if (code, hop.end, type(hop.owner)) in checked:
                    continue
                checked.add((code, hop.end, type(hop.owner)))
                for where, place in unseen(hop, side if side >= 0 else -1 - side, ran[code]):
                    if place is None:
                        return where, {}
                    guards.setdefault(code, set()).add(place)
    return None, guards


def _check_blocks(stacks: Sequence[Stack]) -> None:
    blocks = [block for stack in stacks for block in stack.blocks]
    for module, count in Counter(id(block.module) for block in blocks).items():
        if count > 1:
            name = next(block.name for block in blocks if id(block.module) == module)
            problem = f"runs one block several times, {name}"
            raise SettingError("model", problem, expected="a separate block each time, with its own connections")


def _chains(stack: Stack) -> Iterator[tuple[Block, list[tuple[int, int, list[Hop]]]]]:
    """Each block with its sums: the number of their connection, the skip's operand (-1 - operand: inner), the way."""
    for block in stack.blocks:
        sums = []
        for number, addition in enumerate(block.additions):
            for step, side in addition.sums:
                outer = step is addition.sums[-1][0]
                sums.append((number, side if outer else -1 - side, hops(step.spots, block.module)))
        yield block, sums


def _plans(stacks: Sequence[Stack], guards: Guards) -> dict[type, Plan]:
    return plans([chain for stack in stacks for _, chain in _chains(stack)], guards)


@contextmanager
def _as_mistakes() -> Iterator[None]:
    """Turns what rewriting and the probes found into an error for the user."""
    try:
        yield
    except (NotRewritable, Unproven) as error:
        raise SettingError("model", f"has additions that can't be replaced: {error}", advice=YOURSELF) from None


def _install(
    stacks: Sequence[Stack], plan: Mapping[type, Plan], undo: ExitStack, run: Callable[[], Any], model: nn.Module
) -> None:
    """Gives blocks and their parts the new methods, and proves them.

    :raises SettingError: the blocks can't be rewritten, or a probe fails.
    """
    watched = [each for stack in stacks for each in stack.blocks[0].module.parameters()]
    proves = not _on_meta(model)
    expected = measured(model, run, watched) if proves else []
    for stack in stacks:
        for block, sums in _chains(stack):
            parts = {id(hop.owner): hop.owner for *_, way in sums for hop in way if hop.owner is not None}
            for part in parts.values():
                _change_class(part, adapted_class(type(part), plan[type(part)], part is block.module), undo)  # type: ignore[arg-type]
            _route(block, undo)
    for kind in (Own, Skip, Branch) if proves else ():
        for stack in stacks:
            for block in stack.blocks:
                block.module.__dict__["probe"] = kind
        if kind is Own:
            compare(measured(model, run, watched), expected)
            continue
        for mode in (model.eval, *([model.train] if kind is Skip else [])):
            mode()
            kind.seen.clear()
            with torch.enable_grad():
                run()
            if missed := [block for stack in stacks for block in stack.blocks if id(block.module) not in kind.seen]:
                raise Unproven(f"{missed[0].name} does not run as a {type(missed[0].module).__name__}")
    for stack in stacks:
        for block in stack.blocks:
            block.module.__dict__["probe"] = None


def _change_class(module: nn.Module, kind: type, undo: ExitStack) -> None:
    if isinstance(module, AdaptedPart):
        return
    former = type(module)
    if "forward" in vars(module) and "_old_forward" not in vars(module):
        raise NotRewritable(f"a {former.__name__} has a forward of its own, in place of its class's")
    undo.callback(setattr, module, "__class__", former)
    module.__class__ = kind
    hooked = vars(module).get("_old_forward")  # accelerate has put a function of its own before it
    if hooked is not None:
        undo.callback(setattr, module, "_old_forward", hooked)
        module.__dict__["_old_forward"] = kind.forward.__get__(module)  # type: ignore[attr-defined]


def _route(block: Block, undo: ExitStack) -> None:
    module: Any = block.module
    names = [name for name in _parameters(type(module))]
    position = block.key if isinstance(block.key, int) else names.index(block.key) if block.key in names else -1
    name = block.key if isinstance(block.key, str) else names[block.key] if block.key < len(names) else ""
    dims = block.dims
    module.__dict__["route"] = Route(position, name, block.slot, True, block.feature_dim, dims)
    module.__dict__["returns_input"] = block.returns_input
    for key in ("route", "probe", "returns_input", "opening", "closing"):
        undo.callback(module.__dict__.pop, key, None)


def _parameters(kind: type) -> list[str]:
    """The names of forward's parameters after self."""
    return list(inspect.signature(kind.forward).parameters)[1:]  # type: ignore[attr-defined]


def _connect(
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
            block.module.__dict__["route"] = replace(block.module.__dict__["route"], by_operand=by_operand)
            if by_operand and all(map(_only_adds, layer.connections())):
                block.module.__dict__["probe"] = Own  # in the library's order of additions
        _add(first.module, "spec_record", as_in(first.module, SpecRecord(str(spec))), undo)
        if any(True for _ in closing.parameters()):  # the block that uses them owns the parameters
            home = last if closing.closes else first
            _add(home.module, "stack", as_in(home.module, closing), undo)
        norm = None
        if stack.final is not None:
            _settle_final(model, stack, spec, eps, removed, undo)
        elif spec.closing_norm is not None and all(block.post_norm for block in stack.blocks):
            norm = as_in(last.module, build_norm(spec.closing_norm, last.features, eps=eps))
        for block in stack.blocks:  # None in the others, because torch.compile doesn't notice a missing key
            block.module.__dict__["opening"] = closing if block is first else None
            block.module.__dict__["closing"] = closing if block is last else None
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
            block.module.__dict__["probe"] = Own
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
    replacement = as_in(home, Removed(names, marks=not removed))
    removed.add(id(norm))
    for owner in list(home.modules()):
        for name, each in list(owner._modules.items()):
            if each is norm:
                _add(owner, name, replacement, undo)


def _add(owner: nn.Module, name: str, module: nn.Module | None, undo: ExitStack) -> None:
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
    if spec.closing_norm is None and _is_pre_norm(stack):
        _remove(model, final, removed | {0}, undo)
    elif spec.closing_norm is not None and spec.closing_norm != kind and id(final) not in removed:
        removed.add(id(final))
        norm = as_in(last.module, build_norm(spec.closing_norm, last.features, last.feature_dim, eps=eps))
        for owner in list(model.modules()):
            for name, each in list(owner._modules.items()):
                if each is final:
                    _add(owner, name, norm, undo)


def _try(model: nn.Module, run: Callable[[], Any], spec: ConnectionSpec) -> None:
    """Runs the adapted model once.

    :raises SettingError: the model's own code can't work with this connection's states.
    """
    model.eval()
    try:
        with torch.no_grad():
            run()
    except Exception as error:
        reason = f"{type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}"
        expected = f"a connection with which {type(model).__name__} runs ({reason})"
        raise SettingError.of_value("connection", str(spec), expected) from error


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


def own_connection(stacks: Sequence[Stack]) -> str | None:
    """The connection of all these blocks, such as `prenorm+ln`, or None if they differ."""
    found = set()
    for stack in stacks:
        for block in stack.blocks:
            for addition in block.additions:
                if addition.closing is not None:
                    found.add(f"1xskip+{norm_kind(addition.closing, block.features, block.feature_dim)}")
                else:
                    found.add(f"prenorm+{addition.reads}" if addition.reads else "1xskip")
    return found.pop() if len(found) == 1 else None


def _is_pre_norm(stack: Stack) -> bool:
    return any(addition.norms for block in stack.blocks for addition in block.additions)


def _norms(addition: Addition) -> list[nn.Module]:
    return [*addition.norms, *([] if addition.closing is None else [addition.closing])]


def _described(stack: Stack) -> str:
    block = stack.blocks[0]
    branches = ", ".join(each.branch for each in block.additions)
    return f"{stack.name or 'the model'}: {len(stack.blocks)} × {type(block.module).__name__} ({branches})"


def _on_meta(model: nn.Module) -> bool:
    return any(each.is_meta for each in model.parameters())


def as_in(block: nn.Module, module: AnyModule) -> AnyModule:
    """The module with the block's device, type and mode."""
    weight = next((each for each in block.parameters() if each.is_floating_point()), None)
    module.train(block.training)
    return module if weight is None else module.to(weight.device, weight.dtype)


def _eps(norm: Any) -> float:
    """The value that the normalisation adds to the variance."""
    eps = getattr(norm, "eps", getattr(norm, "variance_epsilon", None))
    return 1e-5 if eps is None else float(eps)


def _unchanged_stacks(module: nn.Module, name: str = "") -> Iterator[str]:
    """Describes each container with several residual blocks of one class in a row and no adapted block."""
    if isinstance(module, AdaptedBlock):
        return
    if isinstance(module, (nn.ModuleList, nn.Sequential)) and not any(
        isinstance(each, AdaptedBlock) for each in module.modules()
    ):
        runs = [(kind, len(list(run))) for kind, run in groupby(filter(_is_like_a_block, module), type)]
        found = [f"{name} ({count} × {kind.__name__})" for kind, count in runs if count > 1]
        if found:
            yield from found
            return
    for child_name, child in module.named_children():
        yield from _unchanged_stacks(child, f"{name}.{child_name}" if name else child_name)


def _is_like_a_block(module: nn.Module) -> bool:
    """Whether a module has a class of its own, a normalisation and several other modules with parameters."""
    if isinstance(module, (nn.ModuleList, nn.Sequential)):
        return False
    owners = [each for each in module.modules() if any(True for _ in each.parameters(recurse=False))]
    norms = sum("norm" in type(each).__name__.lower() for each in owners)
    return norms > 0 and len(owners) - norms > 1


