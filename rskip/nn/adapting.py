"""Replaces the residual additions in any model by a connection."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from rskip.connections import ConnectionSpec, parse_connection
from rskip.connections.connection import HostNeed
from rskip.nn.adapted import AdaptedBlock, AdaptedPart, ResidualStream, Route, adapted_class
from rskip.nn.connecting import Connecting, is_pre_norm
from rskip.nn.example_inputs import example_inputs
from rskip.nn.finding import Block, Stack, find_missed, find_stacks, norm_kind
from rskip.nn.hosts import timm_model, transformers_model
from rskip.nn.hosts.stream_models import StreamModel, stream_models
from rskip.nn.proving import evaluated, prove, trained, undisturbed
from rskip.nn.rewriting import (
    STREAM,
    YOURSELF,
    Plan,
    Unprovable,
    Ways,
    changes,
    find_guards,
    hops,
    missed_addition,
    plans,
)
from rskip.nn.tracing import Trace, trace
from rskip.settings.errors import SettingError

Model = TypeVar("Model", bound=nn.Module)
_MEMBERS = ("residuals", "closing_norm", "spec_record", "other_streams")


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
    :param unchanged: containers of blocks that look residual and were not found, with their number and class; blocks
        that can't carry the connection's state; normalisations in the code of blocks that the connection does not have.
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
        lines += [f"unchanged: {each}" for each in self.unchanged]
        return "\n".join(lines)


def _without_numbers(name: str) -> str:
    """The name with `*` for numbers, except for those inside a connection."""
    outside, connection, inside = name.partition(".connection.")
    return re.sub(r"\.\d+(?=\.|$)", ".*", outside) + connection + inside


def adapt(
    model: Model,
    connection: str | ConnectionSpec,
    *,
    blocks: str | type[nn.Module] | Collection[type[nn.Module]] | Collection[nn.Module] | None = None,
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
    :param blocks: name of the module that contains the blocks, such as `transformer.h`, their class or classes, or the
        blocks; None: all blocks of the model.
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
    if carriers := list(stream_models(model)):
        _adapt_streams(model, carriers, spec, host_supplies, dry_run=dry_run)
        return model
    wanted = _wanted(model, blocks)
    former, random_state = set(model.modules()), torch.get_rng_state()
    conditions = transformers_model.Unmasked() if _on_meta(model) else nullcontext()
    with torch.inference_mode(False), undisturbed(model), conditions:
        run, outputs, found, ways, plan = _found(model, example, wanted)
        if dry_run:
            print("\n".join(changes(plan)))
            return model
        before = dict(model.named_parameters())
        with ExitStack() as undo:
            _turn_off_fast_path(model, undo)
            _install(model, run, outputs, found, ways, plan, undo)
            torch.set_rng_state(random_state)  # initial values are drawn from the caller's seed, not the probes'
            with torch.device("cpu"):
                Connecting(model, spec, host_supplies, undo).connect(found)
            random_state = torch.get_rng_state()
            transformers_model.finish(model, str(spec), undo)
            if not _on_meta(model):
                _try(model, run, spec)
            undo.pop_all()
    torch.set_rng_state(random_state)
    adapted = [block for stack in found for block in stack.blocks]
    for module in model.modules():
        for child in set(module.children()) - former:
            child.training = module.training
    unclosed = tuple(each.name for each in found if each.final is None and is_pre_norm(each))
    unchanged = (*_left(adapted, spec), *(_unchanged_stacks(model) if wanted is None else _not_found(model, wanted)))
    stacks, modules = [], []
    for stack in found:
        changed = [block for block in stack.blocks if "residuals" in block.place._modules]
        if not changed:
            continue
        branches = [addition.branch for addition in changed[0].additions]
        name = stack.name + next(filter(None, map(_argument, changed)), "")
        stacks.append(_described(name, [block.module for block in changed], branches))
        modules += [block.module for block in changed]
    _finish(model, spec, before, modules, stacks, own_connection(adapted), unclosed, unchanged)
    if unchanged:
        warnings.warn(f"adapt left unchanged: {', '.join(unchanged)}", stacklevel=2)
    return model


def _adapt_streams(
    model: nn.Module,
    carriers: Sequence[StreamModel],
    spec: ConnectionSpec,
    supplies: HostNeed | Collection[HostNeed],
    *,
    dry_run: bool,
) -> None:
    """Replaces the connection of a model that carries streams."""
    own = {str(each.spec) for each in carriers}
    stacks = [_described(each.name, each.model.layers, ("attention", "ffn")) for each in carriers]
    if dry_run:
        for each, stack in zip(carriers, stacks, strict=True):
            print(f"{spec} in place of {each.spec} in {stack}")
        return
    before = dict(model.named_parameters())
    layers = [layer for each in carriers for layer in each.model.layers]
    for each in carriers:
        each.replace(spec, supplies)
    transformers_model.finish(model, str(spec), ExitStack())
    _finish(model, spec, before, layers, stacks, own.pop() if len(own) == 1 else None)


def _finish(
    model: nn.Module,
    spec: ConnectionSpec,
    before: Mapping[str, nn.Parameter],
    blocks: Sequence[nn.Module],
    stacks: Sequence[str],
    own: str | None,
    unclosed: Sequence[str] = (),
    unchanged: Sequence[str] = (),
) -> None:
    """Tells timm of the connection, and notes what was done.

    :param before: the former parameters. They still exist, so that no new one has the id of one.
    """
    timm_model.finish(model)
    old = {id(each): name for name, each in before.items()}
    names = {id(each): name for name, each in model.named_parameters()}
    model.__dict__["rskip_adaptation"] = Adaptation(
        str(spec),
        dict(Counter(type(each).__name__ for each in dict.fromkeys(blocks))),
        tuple(stacks),
        own,
        kept={name: old[key] for key, name in names.items() if key in old and old[key] != name},
        new=tuple(name for key, name in names.items() if key not in old),
        dropped=tuple(name for key, name in old.items() if key not in names),
        unclosed=tuple(unclosed),
        unchanged=tuple(unchanged),
    )


def _left(blocks: Sequence[Block], spec: ConnectionSpec) -> Iterator[str]:
    """The blocks that keep the library's sums, since they can't carry the connection's state; then norms.

    These are no modules, and stay in blocks' code although the connection has none of their kind there.
    """
    for block in blocks:
        if "residuals" not in block.place._modules:
            yield f"{block.name}{_argument(block)} ({type(block.module).__name__})"
    yield from dict.fromkeys(
        f"{addition.reads} in the code of {type(block.module).__name__}"
        for block in blocks
        for addition in block.additions
        if addition.reads not in (None, spec.closing_norm) and not addition.norms
    )


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
        if isinstance(module, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            problem = f"is wrapped in {type(module).__name__}{where}"
            raise SettingError("model", problem, advice="adapt it, then wrap it")
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
        return set(container.children()).__contains__
    kinds = (blocks,) if isinstance(blocks, type) else tuple(blocks) if isinstance(blocks, Iterable) else ()
    if kinds and all(isinstance(each, nn.Module) for each in kinds):
        return set(kinds).__contains__
    if not kinds or not all(isinstance(each, type) and issubclass(each, nn.Module) for each in kinds):
        raise SettingError.of_value("blocks", blocks, "a module's name, or classes of modules")
    return lambda module: isinstance(module, kinds)


def _found(
    model: nn.Module, example: Any, wanted: Callable[[nn.Module], bool] | None
) -> tuple[Callable[[], Any], list[Tensor], list[Stack], list[Ways], dict[type, Plan]]:
    """A run of the model, its outputs, its stacks of blocks, the ways to each block's sums, and the new methods.

    :raises SettingError: the model takes none of the examples, or has no residual block.
    """
    model.eval()
    failed: Exception | None = None
    for args, kwargs in example_inputs(model, example):

        def run(args: tuple[Any, ...] = args, kwargs: dict[str, Any] = kwargs) -> Any:
            return model(*args, **kwargs)

        try:
            with ExitStack() as undo:
                _turn_off_fast_path(model, undo)
                traced = Trace()
                outputs = evaluated(model, partial(trace, model, run, traced))
                if any(isinstance(each, nn.MultiheadAttention) for each in model.modules()):
                    outputs = evaluated(model, run)  # it takes a faster path here than in the trace
        except Exception as error:
            failed = failed or error
            continue
        stacks = find_stacks(model, traced, wanted)
        if not stacks:
            advice = f"name them with blocks=, give an example= that reaches them, or {YOURSELF}"
            problem = f"({type(model).__qualname__}) has no block whose residual additions can be found"
            raise SettingError("model", problem, advice=advice)
        _check_blocks(stacks)
        ways = _ways(_by_module(stacks))
        guards = find_guards(ways, traced.steps)
        if wanted is None and (missed := find_missed(traced, stacks)) is not None:
            raise missed_addition(missed)
        return run, outputs, stacks, ways, plans(ways, guards)
    what = "does not run on example" if example is not None else "does not run on tokens, images or features"
    advice = "pass example=, arguments that it takes"
    raise SettingError("model", f"{what} ({_brief(failed)})", advice=advice) from failed


def _check_blocks(stacks: Sequence[Stack]) -> None:
    for streams in _by_module(stacks):
        if len({block.call for block in streams}) > 1:
            problem = f"runs one block several times, {streams[0].name}"
            raise SettingError("model", problem, expected="a separate block each time, with its own connections")


def _by_module(stacks: Sequence[Stack]) -> list[list[Block]]:
    """The streams of each block."""
    found: dict[nn.Module, list[Block]] = {}
    for block in sorted((block for stack in stacks for block in stack.blocks), key=lambda block: block.number):
        found.setdefault(block.module, []).append(block)
    return list(found.values())


def _ways(modules: Sequence[Sequence[Block]]) -> list[Ways]:
    """The ways to each module's sums.

    Where several streams pass through the modules of a class, the connections of the first have the numbers from 0, of
    the second from STREAM, and so on, the same in all these modules.
    """
    several = {type(block.module) for streams in modules for block in streams[1:]}
    every = {(type(block.module), block.argument) for streams in modules for block in streams}
    found: list[Ways] = []
    for streams in modules:
        found.append([])
        for block in streams:
            if type(block.module) in several:
                known = sorted(argument for kind, argument in every if kind is type(block.module))
                block.first = STREAM * known.index(block.argument)
            for number, addition in enumerate(block.additions, block.first):
                for step, side in addition.sums:
                    side = side if step is addition.sums[-1][0] else -1 - side
                    found[-1].append((number, side, hops(step.spots, block.module)))
    return found


def _turn_off_fast_path(model: nn.Module, undo: ExitStack) -> None:
    """Keeps PyTorch from computing adapted encoder layers in one kernel, by the attributes that it asks before.

    They take PyTorch's other path, so outputs at padding are not 0.
    """
    for module in model.modules():
        if isinstance(module, nn.TransformerEncoderLayer):
            undo.callback(setattr, module, "activation_relu_or_gelu", module.activation_relu_or_gelu)
            module.activation_relu_or_gelu = 0
        elif isinstance(module, nn.TransformerEncoder):
            undo.callback(setattr, module, "use_nested_tensor", module.use_nested_tensor)
            module.use_nested_tensor = False


def _install(
    model: nn.Module,
    run: Callable[[], Any],
    outputs: Sequence[Tensor],
    stacks: Sequence[Stack],
    ways: Sequence[Ways],
    plan: Mapping[type, Plan],
    undo: ExitStack,
) -> None:
    """Gives blocks and their parts the new methods, and proves them.

    :raises Unprovable: a probe fails.
    """
    watched = [each for stack in stacks for each in stack.blocks[0].module.parameters()]
    gradients = None if _on_meta(model) else trained(model, run, watched)
    for streams, sums in zip(_by_module(stacks), ways, strict=True):
        for part in {id(hop.owner): hop.owner for *_, way in sums for hop in way if hop.owner is not None}.values():
            base = AdaptedBlock if part is streams[0].module else AdaptedPart
            _change_class(part, adapted_class(type(part), plan[type(part)], base), undo)  # type: ignore[arg-type]
        for block in streams:
            _route(block, undo)
    if not _on_meta(model):
        places = {block.name + _argument(block): block.place for stack in stacks for block in stack.blocks}
        prove(model, run, places, outputs, gradients, watched)


def _change_class(module: nn.Module, kind: type, undo: ExitStack) -> None:
    if isinstance(module, AdaptedPart):
        return
    former = type(module)
    if "forward" in vars(module) and "_old_forward" not in vars(module):
        raise Unprovable(f"a {former.__name__} has a forward of its own, in place of its class's")
    undo.callback(setattr, module, "__class__", former)
    module.__class__ = kind
    hooked = vars(module).get("_old_forward")  # accelerate has put a function of its own before it
    if hooked is not None:
        undo.callback(setattr, module, "_old_forward", hooked)
        module.__dict__["_old_forward"] = kind.forward.__get__(module)  # type: ignore[attr-defined]


def _route(block: Block, undo: ExitStack) -> None:
    """Gives a stream of a block its place and its route."""
    module: Any = block.module
    block.place = ResidualStream() if block.number else module
    if block.number:
        if block.number == 1:
            module.other_streams = nn.ModuleList()
            undo.callback(module._modules.pop, "other_streams")
        module.other_streams.append(block.place)
    elif taken := [name for name in _MEMBERS if hasattr(module, name)]:
        raise Unprovable(f"{type(module).__name__} has a member {taken[0]}, which is the name of one of rskip's")
    route = Route(*block.argument, block.slot, block.feature_dim, block.dims, block.first)
    block.place.__dict__["rskip_route"] = route
    block.place.__dict__["rskip_returns_input"] = block.returns_input
    for key in ("rskip_route", "rskip_passage", "rskip_returns_input", "rskip_opening", "rskip_closing"):
        undo.callback(block.place.__dict__.pop, key, None)


def _argument(block: Block) -> str:
    """The name of the stream if the block has several."""
    return f", {block.argument[1]}" if "other_streams" in block.module._modules else ""


def _try(model: nn.Module, run: Callable[[], Any], spec: ConnectionSpec) -> None:
    """Runs the adapted model once.

    :raises SettingError: the model's own code can't work with this connection's states.
    """
    model.eval()
    try:
        with torch.no_grad():
            run()
    except Exception as error:
        expected = f"a connection with which {type(model).__name__} runs ({_brief(error)})"
        raise SettingError.of_value("connection", str(spec), expected) from error


def _brief(error: Exception | None) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0][:150]}"


def own_connection(blocks: Sequence[Block]) -> str | None:
    """The connection of all these blocks, such as `prenorm+ln`, or None if they differ."""
    found = set()
    for block in blocks:
        for addition in block.additions:
            if addition.closing is not None:
                found.add(f"1xskip+{norm_kind(addition.closing, block.features, block.feature_dim)}")
            else:
                found.add(f"prenorm+{addition.reads}" if addition.reads else "1xskip")
    return found.pop() if len(found) == 1 else None


def _described(name: str, blocks: Sequence[nn.Module], branches: Iterable[str]) -> str:
    kinds = ", ".join(f"{count} × {kind}" for kind, count in Counter(type(each).__name__ for each in blocks).items())
    return f"{name or 'the model'}: {kinds} ({', '.join(branches)})"


def _on_meta(model: nn.Module) -> bool:
    return any(each.is_meta for each in model.parameters())


def _not_found(model: nn.Module, wanted: Callable[[nn.Module], bool]) -> Iterator[str]:
    """The modules that the user named as blocks, look like some, and have no residual addition that was found."""
    for name, module in model.named_modules():
        if wanted(module) and _is_like_a_block(module) and not isinstance(module, AdaptedBlock):
            yield f"{name} ({type(module).__name__})"


def _unchanged_stacks(module: nn.Module, name: str = "") -> Iterator[str]:
    """Describes each container with several residual blocks of one class in a row and no adapted block.

    And those with blocks of the class of an adapted one in the container.
    """
    if isinstance(module, AdaptedBlock):
        return
    if isinstance(module, (nn.ModuleList, nn.Sequential)):
        adapted = {type(each).library_class for each in module if isinstance(each, AdaptedBlock)}
        for kind, count in Counter(type(each) for each in module if type(each) in adapted).items():
            yield f"{name or 'the model'} ({count} × {kind.__name__})"
        is_untouched = not any(isinstance(each, AdaptedBlock) for each in module.modules())
        runs = [(kind, len(list(run))) for kind, run in groupby(filter(_is_like_a_block, module), type)]
        found = [f"{name} ({count} × {kind.__name__})" for kind, count in runs if count > 1 and is_untouched]
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


