"""Finds the residual blocks of a model in a trace: their additions, norms, branches and stacks."""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from rskip.nn.tracing import Call, Step, Trace

_ATTENTION = re.compile(r"attn|attention|mixer|mamba|ssm|rwkv|recurrent|time_mix|retention|delta|conv", re.IGNORECASE)
_CROSS = re.compile(r"cross|enc_?dec|encoder_attn|src_attn|inter_attention", re.IGNORECASE)
_FFN = re.compile(r"mlp|ffn|ff\b|feed_?forward|dense|expert|moe|fc|intermediate|channel_mix", re.IGNORECASE)
_SECOND_READERS = re.compile(r"conv|batch_norm|group_norm")
_LARGEST = 200  # steps of a block with a projection
_TURNS = re.compile(r"transpose|permute|movedim|swap(axes|dims)|t|__get__")
_CONTAINERS = (nn.ModuleList, nn.Sequential, nn.ModuleDict)


class Path(NamedTuple):
    """How a value follows from an earlier one: whether on a way without, and on one with a linear map."""

    cheap: bool
    linear: bool


@dataclass
class Addition:
    """One residual addition of a block, in one or several sums such as (x + attention) + mlp.

    :param sums: each sum, and which of its two operands the skip is.
    :param skip: the value that passes by the branch.
    :param result: the value of the last sum.
    :param norms: the modules in which all other readers of the skip lie, if each is a normalisation.
    :param reads: the normalisation of the branch's input, of a module or function: `ln`, `rms`, or None.
    :param closing: the module that alone reads the result in the block, if it is a normalisation.
    :param branch: name of the branch.
    """

    sums: list[tuple[Step, int]]
    skip: int
    result: int
    norms: list[nn.Module] = field(default_factory=list)
    reads: str | None = None
    closing: nn.Module | None = None
    branch: str = "block"


@dataclass(eq=False)
class Block:
    """A module whose output is its input after residual additions.

    :param key: name or position of the argument that is the stream.
    :param slot: position of the stream in the output, if that is a tuple.
    :param keeps_skip: whether every skip is the stream itself, so that a connection's state may take its place.
    :param ends: whether the output is the last addition's result, or its normalisation.
    :param feature_dim: -1, or 1 for feature maps (N, C, H, W).
    :param dims: number of the stream's dimensions.
    :param returns_input: whether the output is the input if all branches return nothing.
    :param turned: whether a sum stands in a transposed form of the stream, as (T, B, C) of (B, T, C).
    :param number: of the stream among those of the module, which has one Block for each.
    :param place: the module that gets what `adapt` adds for this stream, and `first`, the number of its first
        connection.
    """

    name: str
    module: nn.Module
    call: int
    key: int | str
    x: int
    out: int
    slot: int | None
    additions: list[Addition]
    keeps_skip: bool
    ends: bool
    features: int = 0
    feature_dim: int = -1
    crosses: bool = False
    causal: bool = False
    dims: int = 3
    returns_input: bool = True
    turned: bool = False
    number: int = 0
    place: Any = None
    first: int = 0

    @cached_property
    def argument(self) -> tuple[int, str]:
        """The position of the stream among the arguments of the module's forward, and its name."""
        named = inspect.signature(type(self.module).forward).parameters.values()
        names = [each.name for each in named if each.kind is not each.VAR_POSITIONAL][1:]
        if isinstance(self.key, str):
            return names.index(self.key) if self.key in names else -1, self.key
        return self.key, names[self.key] if self.key < len(names) else str(self.key)

    @property
    def sums(self) -> set[int]:
        """The ids of the sums' steps."""
        return {id(step) for addition in self.additions for step, _ in addition.sums}

    @property
    def post_norm(self) -> bool:
        """Whether each sum is normalised."""
        return all(each.closing is not None for each in self.additions)


@dataclass(eq=False)
class Stack:
    """Blocks of which each reads what the one before returned.

    :param between: what the model computes with blocks' outputs on the way, as `function (file:line)`; none if it only
        passes them on.
    :param final: the normalisation that reads the last block's output, and no module before it does.
    """

    blocks: list[Block]
    between: list[str] = field(default_factory=list)
    final: nn.Module | None = None

    @property
    def name(self) -> str:
        return self.blocks[0].name.rpartition(".")[0]


def find_stacks(model: nn.Module, trace: Trace, wanted: Callable[[nn.Module], bool] | None = None) -> list[Stack]:
    """The stacks of residual blocks, in the order in which the model ran them.

    :param wanted: which modules may be blocks; None: each one that is not part of another block.
    """
    names = {id(module): name for name, module in reversed([*model.named_modules(remove_duplicate=False)])}
    blocks = []
    for number, call in enumerate(trace.calls):
        if isinstance(call.module, _CONTAINERS) or call.last < 0:
            continue
        if wanted is None or wanted(call.module):
            blocks += _read(trace, number, names[id(call.module)])
    chosen = blocks if wanted is not None else _choose(trace, blocks)
    for block in chosen:
        _describe(trace, block)
    return _join(trace, chosen)


def find_missed(trace: Trace, stacks: Sequence[Stack]) -> str | None:
    """Where a layer that contains one of the blocks adds residually outside of its blocks, as `file:line`."""
    blocks = [block for stack in stacks for block in stack.blocks]
    found = {step for block in blocks for step in block.sums}
    inside = {block.call for block in blocks}
    containers = {id(each): each for call in trace.calls for each in call.module.children()}.values()
    elements = {id(each) for holder in containers if isinstance(holder, _CONTAINERS) for each in holder.children()}
    layers = set()
    for number in inside:  # the outermost call of a list's element around this call
        layers |= set([each for each in _around(trace, number) if id(trace.calls[each].module) in elements][-1:])
    for call in (trace.calls[number] for number in layers - inside):
        for x in call.reads.values():
            paths, _ = _paths(trace, call, trace.same[x], all_of_them=True)
            for step, pair in _sums(trace, call):
                if id(step) not in found and inside.isdisjoint(step.stack):
                    for skip, branch in (pair, pair[::-1]):
                        path = paths.get(branch, {}).get(skip)
                        if path is not None and path.linear and not path.cheap:
                            return f"{step.where[0]}:{step.where[1]}"
    return None


def _around(trace: Trace, number: int) -> Iterator[int]:
    """The calls around a call, innermost first."""
    above = trace.calls[number].outer
    while above is not None:
        yield above
        above = trace.calls[above].outer


def _read(trace: Trace, number: int, name: str) -> list[Block]:
    """The module's call as a block, if one of its arguments is a stream; several, such as text and image, if they are.
    """
    call = trace.calls[number]
    found: list[Block] = []
    outputs = call.gives if isinstance(call.gives, list) else [call.gives]
    for key, x in call.reads.items():
        if len(trace.sizes[x]) < 2:
            continue
        paths, depth = _paths(trace, call, trace.same[x])
        for slot, out in enumerate(outputs):
            if out is None:
                continue
            chain = _chain(trace, call, trace.same[x], trace.same[out], paths, depth)
            if chain is not None:
                additions, keeps, ends = chain
                place = slot if isinstance(call.gives, list) else None
                found.append(Block(name, call.module, number, key, x, out, place, additions, keeps, ends))
    streams: list[Block] = []
    for each in sorted(found, key=lambda block: (block.keeps_skip, len(block.additions)), reverse=True):
        apart = [each.x != other.x and each.out != other.out and each.sums.isdisjoint(other.sums) for other in streams]
        if not streams or (each.keeps_skip and all(apart)):
            streams.append(each)
    sums = {step for each in found for step in each.sums}
    if sums > {step for each in streams for step in each.sums}:
        return []  # it adds to a stream that does not pass through it
    results = {trace.same[each] for each in outputs if each is not None}
    given = {trace.same[each] for each in call.reads.values()}
    for step in trace.steps[call.first : call.last]:
        adds = step.kind == "add" and id(step) not in sums and results.intersection(step.gives)
        if adds and given.intersection(trace.same[each] for each in step.reads):
            return []  # it adds to a second stream
    streams.sort(key=lambda block: block.argument)
    for index, each in enumerate(streams):
        each.number = index
    return streams


def _paths(
    trace: Trace, call: Call, x: int, *, all_of_them: bool = False
) -> tuple[dict[int, dict[int, Path]], dict[int, int]]:
    """For each value that follows from x: its ancestors in the stream (those without a linear map since x), and depth.

    The depth is the largest number of learned linear maps between x and the value.

    :param all_of_them: all ancestors from x on.
    """
    paths: dict[int, dict[int, Path]] = {x: {}}
    depth = {x: 0}
    for step in trace.steps[call.first : call.last]:
        if step.kind == "alias":
            continue
        through = step.kind == "linear"
        mine: dict[int, Path] = {}
        for read in {trace.same[each] for each in step.reads}:
            if read not in paths:
                continue
            in_stream = all_of_them or read == x or paths[read][x].cheap
            for value, path in (*paths[read].items(), *([(read, Path(True, False))] if in_stream else [])):
                cheap, linear = mine.get(value, (False, False))
                mine[value] = Path(cheap or (path.cheap and not through), linear or path.linear or through)
        if "sub" in step.name and len({trace.sizes[each].numel() for each in (*step.reads, *step.gives)}) == 1:
            mine = {each: Path(path.cheap and not path.linear, path.linear) for each, path in mine.items()}  # f(x) - x
        if mine:
            deepest = max(depth[read] for each in step.reads if (read := trace.same[each]) in depth)
            for each in step.gives:
                if trace.same[each] == each:
                    paths[each], depth[each] = mine, deepest + (through and "pool" not in step.name)
    return paths, depth


def _chain(
    trace: Trace, call: Call, x: int, out: int, paths: dict[int, dict[int, Path]], depth: dict[int, int]
) -> tuple[list[Addition], bool, bool] | None:
    """The additions from x to out, if each takes up the one before; whether every skip is the stream; the end."""
    makers = {each: step for step in trace.steps[call.first : call.last] for each in step.gives}
    others = {trace.same[each] for each in call.reads.values()} - {x}

    def follows(value: int, earlier: int) -> bool:
        """Whether nothing but the earlier value and parameters, such as a normalisation's, goes into a value."""
        if value == earlier:
            return True
        path = paths.get(value, {}).get(earlier)
        if path is None or path.linear or not path.cheap:
            return False
        reads = {trace.same[each] for each in makers[value].reads}
        return all(follows(each, earlier) for each in reads if each in makers or each in others)

    known: list[Addition] = []
    for step, pair in _sums(trace, call):
        for side in (0, 1):
            skip, branch = pair[side], pair[1 - side]
            path = paths.get(branch, {}).get(skip)
            in_stream = skip == x or (skip in paths and paths[skip].get(x, Path(False, True)).cheap)
            if path is not None and path.linear and not path.cheap and in_stream:
                known.append(Addition([(step, side)], skip, step.gives[0]))
                break
            before = next((each for each in known if each.result == skip), None)
            if before is not None and branch in paths:
                path = paths[branch].get(before.skip)
                if path is not None and path.linear and before.result not in paths[branch]:
                    before.sums.append((step, side))
                    before.result = step.gives[0]
                    break
    additions: list[Addition] = []  # those on the way from x to the output, not those in branches
    value = out
    while (last := next((each for each in known if follows(value, each.result)), None)) is not None:
        additions.insert(0, last)
        known.remove(last)
        value = last.skip
    if additions and follows(value, x):
        return additions, True, out == additions[-1].result
    if call.last - call.first > _LARGEST:
        return None
    additions = _shortcuts(trace, call, x, out)
    paths, _ = _paths(trace, call, x, all_of_them=True)
    if len({trace.sizes[each.result] for each in additions}) != 1 or not follows(out, additions[-1].result):
        return None
    return additions, False, out == additions[-1].result


def _sums(trace: Trace, call: Call) -> Iterator[tuple[Step, list[int]]]:
    """The sums of a call of two tensors of the result's size, and their operands."""
    for step in trace.steps[call.first : call.last]:
        sizes = {trace.sizes[each].numel() for each in (*step.reads, *step.gives)}
        if step.kind == "add" and len(step.reads) == 2 and len(sizes) == 1:
            yield step, [trace.same[each] for each in step.reads]


def _shortcuts(trace: Trace, call: Call, x: int, out: int) -> list[Addition]:
    """The additions through which all of x's ways to the output lead, if shortcuts or what precedes them change x.

    A shortcut has fewer learned maps than the branch and at most one, or the branch follows from it. None are found if
    another sum, or what has a way around a map as a gate or lerp has, could be a residual addition too.
    """
    additions: list[Addition] = []
    paths, depth = _paths(trace, call, x, all_of_them=True)
    for step, pair in _sums(trace, call):
        if not all(each in paths for each in pair) or not _passes_all(trace, call, x, out, step):
            continue
        for side in (0, 1):
            skip, branch = pair[side], pair[1 - side]
            roots = {skip: Path(True, False), **paths[skip]}
            ways = [(path, paths[branch][each]) for each, path in roots.items() if each in paths[branch]]
            before = Path(True, False) if skip == x else paths[skip][x]
            if not (before.cheap and before.linear) and (
                depth[skip] <= 1 and depth[skip] < depth[branch]
                or any(one.cheap and not one.linear and other.linear and not other.cheap for one, other in ways)
            ):
                additions.append(Addition([(step, side)], skip, step.gives[0]))
                x = step.gives[0]
                paths, depth = _paths(trace, call, x, all_of_them=True)
                break
        else:
            if depth[pair[0]] != depth[pair[1]] or any(each == x or paths[each][x].cheap for each in pair):
                return []
    return additions


def _passes_all(trace: Trace, call: Call, x: int, out: int, through: Step) -> bool:
    """Whether all ways from x to the output lead through this step."""
    reached = {x}
    for step in trace.steps[call.first : call.last]:
        if step is not through and reached.intersection(trace.same[each] for each in step.reads):
            reached.update(step.gives)
    return out not in reached


def _choose(trace: Trace, blocks: list[Block]) -> list[Block]:
    """Of nested blocks the outer one, unless its additions are those of inner blocks of one class, as in a stage.

    A block with several streams has none inside.
    """

    def inner(block: Block) -> list[Block]:
        return [each for each in blocks if each.call != block.call and block.call in _around(trace, each.call)]

    several = {block.call for block in blocks if block.number}
    blocks = [block for block in blocks if block.call not in several or not inner(block)]
    chosen: list[Block] = []

    def choose(block: Block) -> list[Block]:
        inside = inner(block)
        outermost = [each for each in inside if not any(each in inner(other) for other in inside if other is not each)]
        theirs = {step for each in outermost for step in each.sums}
        kinds = {type(each.module) for each in outermost}
        is_layer = len(kinds) == len(outermost) > 1 and all(len(each.additions) == 1 for each in outermost)
        if (is_layer and block.keeps_skip) or not block.sums <= theirs:
            return [block]
        return [found for each in outermost for found in choose(each)]

    for block in blocks:
        if not any(block in inner(other) for other in blocks):
            chosen += choose(block)
    return chosen


def _describe(trace: Trace, block: Block) -> None:
    """Adds the normalisations, the features, and the names of the branches."""
    call = trace.calls[block.call]
    block.features, block.feature_dim = _features(trace, block)
    block.dims = len(trace.sizes[block.x])
    block.turned = _is_turned(trace, block)
    if block.turned:  # what reads the operands of its sums has the features where they have them
        last = {trace.sizes[each.result][-1] == block.features for each in block.additions}
        block.feature_dim = -1 if all(last) else 1
    if not block.keeps_skip:
        block.features = trace.sizes[block.additions[-1].result][block.feature_dim]
    for number, addition in enumerate(block.additions):
        readers = _readers(trace, call, addition.skip, addition)
        _set_norms(trace, block, addition, readers)
        after = _readers(trace, call, addition.result, None)
        later = block.additions[number + 1].skip if number + 1 < len(block.additions) else trace.same[block.out]
        found = {id(module): module for step in after if (module := _norm_around(trace, block, step, addition.result))}
        if after and len(found) == 1 and later != addition.result:
            closing = next(iter(found.values()))
            if all(_norm_around(trace, block, step, addition.result) for step in after):
                addition.closing = closing
                block.ends = True
        else:
            block.keeps_skip = block.keeps_skip and later == addition.result
    if block.ends and not block.post_norm:  # a normalisation of the stream that stays in the block, as a Conformer's
        block.keeps_skip &= all(each.closing is None for each in block.additions[:-1])
        block.ends = trace.same[block.out] == block.additions[-1].result
        for addition in block.additions:
            addition.closing = None
    block.keeps_skip = block.keeps_skip and block.additions[0].skip == trace.same[block.x]
    block.returns_input = block.keeps_skip and trace.same[block.out] == block.additions[-1].result
    block.keeps_skip &= not block.turned
    # another stream, or more of the output, can't read a state
    ends = {trace.same[block.out], *(each.result for each in block.additions[-1:] if each.closing is None)}
    block.ends &= not any(_readers(trace, call, each, None) for each in ends)
    _name_branches(trace, block)


def _is_turned(trace: Trace, block: Block) -> bool:
    """Whether a sum's skip is a transposed alias of the stream, which no state can take the place of."""
    call = trace.calls[block.call]
    turned: dict[int, bool] = {}
    makers = {each: step for step in trace.steps[call.first : call.last] if step.kind == "alias" for each in step.gives}
    for addition in block.additions:
        step, side = addition.sums[0]
        value, is_turned = step.reads[side], False
        while value in makers:
            alias = makers[value]
            reshapes = alias.name == "__get__" and trace.sizes[value] == trace.sizes[alias.reads[0]]
            is_turned ^= bool(_TURNS.fullmatch(alias.name)) and not reshapes
            value = alias.reads[0]
        turned[addition.result] = is_turned ^ turned.get(value, False)
    return any(turned.values())


def _readers(trace: Trace, call: Call, value: int, addition: Addition | None) -> list[Step]:
    """The steps of a call that read a value, except for aliases and the addition itself."""
    own = [] if addition is None else [step for step, _ in addition.sums]
    steps = [each for each in trace.steps[call.first : call.last] if each.kind != "alias" and each not in own]
    return [step for step in steps if any(trace.same[each] == value for each in step.reads)]


def _set_norms(trace: Trace, block: Block, addition: Addition, readers: list[Step]) -> None:
    modules = [_norm_around(trace, block, step, addition.skip) for step in readers]
    if readers and all(module is not None for module in modules):
        addition.norms = list({id(module): module for module in modules if module is not None}.values())
        kinds = {norm_kind(module, block.features, block.feature_dim) for module in addition.norms}
        addition.reads = kinds.pop() if len(kinds) == 1 else None
    elif readers and {step.name for step in readers} <= {"rms_norm", "layer_norm"}:
        addition.reads = "rms" if readers[0].name == "rms_norm" else "ln"


def _norm_around(trace: Trace, block: Block, step: Step, value: int) -> nn.Module | None:
    """The normalisation whose call reads the value in this step."""
    for number in step.stack[step.stack.index(block.call) + 1 :]:
        call = trace.calls[number]
        reads = {trace.same[each] for each in call.reads.values()}
        if value in reads and norm_kind(call.module, block.features, block.feature_dim):
            return call.module
    return None


def norm_kind(norm: nn.Module, features: int, feature_dim: int = -1) -> str | None:
    """`ln` or `rms` if that is what the module computes, up to a factor and a summand per feature; otherwise None."""
    tensors = [*norm.parameters(), *norm.buffers()]
    if any(True for _ in norm.children()) or any(each.numel() not in (1, features) for each in tensors):
        return None
    key = type(norm), tuple(each.numel() for each in tensors), features, feature_dim, *_settings(norm)
    if key not in _KINDS:
        with torch.device("cpu"):
            _KINDS[key] = _measured_kind(norm, features, feature_dim)
    return _KINDS[key]


_KINDS: dict[Any, str | None] = {}  # of normalisations of one class and settings


def _settings(norm: nn.Module) -> list[tuple[str, Any]]:
    return sorted((name, each) for name, each in vars(norm).items() if isinstance(each, (bool, int, float, str)))


def _measured_kind(norm: nn.Module, features: int, feature_dim: int) -> str | None:
    trial = copy.copy(norm)
    for name in ("_parameters", "_buffers"):
        tensors = {key: each for key, each in vars(norm)[name].items() if each is not None}
        halves = {key: torch.full(each.shape, 0.5, dtype=torch.float32) for key, each in tensors.items()}
        trial.__dict__[name] = {**vars(norm)[name], **halves}
    trial.training = False
    shape = (2, 3, features) if feature_dim == -1 else (2, features, 2, 2)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float32) + 0.5
    with torch.no_grad():
        try:
            y = type(norm).forward(trial, x)  # without hooks
        except Exception:  # it needs something else than x
            return None
        if not isinstance(y, Tensor) or y.shape != x.shape:
            return None
        flat, given = (each.movedim(feature_dim, -1).reshape(-1, features).float() for each in (y, x))
        for kind, centred in (("ln", given - given.mean(-1, keepdim=True)), ("rms", given)):
            scaled = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
            slope = (flat[0] - flat[1]) / (scaled[0] - scaled[1])
            rest = flat - slope * scaled
            if slope.abs().max() > 1e-3 and rest.std(0).max() < 1e-2 * slope.abs().max():
                return kind
    return None


def _features(trace: Trace, block: Block) -> tuple[int, int]:
    """The number of features, and their dimension in the stream.

    They are those of the first normalisation or convolution that reads it, or reads an activation of it.
    """
    call, shape = trace.calls[block.call], trace.sizes[block.x]
    sums = [step for addition in block.additions for step, _ in addition.sums]
    reached = {trace.same[block.x]}
    for step in trace.steps[call.first : call.last]:
        given = next((trace.sizes[each] for each in step.reads if trace.same[each] in reached), None)
        if given is None or step.kind == "alias" or step in sums:
            continue
        if step.name == "layer_norm":
            count = given[-1]
        elif _SECOND_READERS.search(step.name) and len(given) > 2:
            count = given[1]
        else:
            reached.update(each for each in step.gives if step.kind != "linear" and trace.sizes[each] == given)
            continue
        is_map = len(shape) == 4 and step.name != "layer_norm"
        if len(shape) > 2 and shape[1] == count and (shape[-1] != count or is_map):
            return count, 1
    return shape[-1], -1


def _name_branches(trace: Trace, block: Block) -> None:
    call = trace.calls[block.call]
    given = [value for key, value in call.reads.items() if key != block.key]
    others = {trace.same[each] for each in given if len(trace.sizes[each]) >= min(3, block.dims)}  # no time embedding
    modules = {id(each) for addition in block.additions for each in (*addition.norms, addition.closing)}
    norms = {number for number, each in enumerate(trace.calls) if id(each.module) in modules}
    numbers = {id(step): number for number, step in enumerate(trace.steps)}
    start = call.first
    for addition in block.additions:
        end = max(numbers[id(step)] for step, _ in addition.sums)
        steps = [each for each in trace.steps[start:end] if norms.isdisjoint(each.stack)]
        start = end + 1
        words = " ".join(_words(trace, block, steps))
        across = any(
            step.name in ("linear", "matmul", "multi_head_attention_forward")
            and any(trace.same[each] in others for each in step.reads[:3])
            for step in steps
        )
        mixes = bool(_ATTENTION.search(words)) or any(
            step.name in ("scaled_dot_product_attention", "multi_head_attention_forward", "softmax") for step in steps
        )
        block.causal |= any(step.causal for step in steps)
        is_both = mixes and _FFN.search(words) and len(block.additions) == 1
        if block.feature_dim == 1 or len(addition.sums) > 1 or is_both:
            addition.branch = "block"
        elif _CROSS.search(words) or (across and mixes):
            addition.branch, block.crosses = "cross_attention", True
        elif _FFN.search(words) and not any("attention" in step.name for step in steps) and not _ATTENTION.match(words):
            addition.branch = "ffn"
        else:
            addition.branch = "attention" if mixes else "ffn"
    taken: dict[str, int] = {}
    names = [each.branch for each in block.additions]
    if "block" in names:
        names = ["block"] * len(names)
    for addition, name in zip(block.additions, names, strict=True):
        taken[name] = taken.get(name, 0) + 1
        addition.branch = name if taken[name] == 1 else f"{name}_{taken[name]}"
    block.causal |= any(getattr(each, "is_causal", False) is True for each in block.module.modules())


def _words(trace: Trace, block: Block, steps: Sequence[Step]) -> Iterator[str]:
    """The classes of the block's parts that compute these steps, without repetition."""
    seen = set()
    names = {id(module): name for name, module in block.module.named_modules()}
    for step in steps:
        for number in step.stack[step.stack.index(block.call) + 1 :]:
            module = trace.calls[number].module
            if number not in seen and not isinstance(module, (nn.Linear, *_CONTAINERS)):
                seen.add(number)
                yield names.get(id(module), "").split(".")[0]
                yield type(module).__name__


def _join(trace: Trace, blocks: list[Block]) -> list[Stack]:
    stacks: list[Stack] = []
    for block in blocks:
        alike = [each for each in reversed(stacks) if _goes_on(trace, each.blocks[-1], block)]
        read = [each for each in alike if trace.same[each.blocks[-1].out] == trace.same[block.x]]
        last = next(iter((*read, *alike)), None)
        if last is None:
            stacks.append(Stack([block]))
        else:
            last.blocks.append(block)
    for stack in stacks:
        _look_between(trace, stack)
    return stacks


def _goes_on(trace: Trace, one: Block, other: Block) -> bool:
    """Whether a block reads what another returned, or the two stand in one container and are equally wide."""
    if one.features != other.features or one.feature_dim != other.feature_dim or one.crosses != other.crosses:
        return False
    same_size = trace.sizes[one.out].numel() == trace.sizes[other.x].numel()
    if trace.same[one.out] == trace.same[other.x]:
        return True
    homes = [re.sub(r"\d+", "", each.name).rpartition(".")[0] for each in (one, other)]
    alike = type(one.module) is type(other.module) and one.number == other.number
    return same_size and homes[0] == homes[1] and alike


def _is_beside(trace: Trace, number: int, block: int) -> bool:
    """Whether a module is called by one that also contains the block."""
    around = (each for each in _around(trace, number) if not isinstance(trace.calls[each].module, _CONTAINERS))
    above = next(around, None)
    return above is None or above in _around(trace, block)


def _look_between(trace: Trace, stack: Stack) -> None:
    """Notes what the model computes with the outputs of all blocks but the last, and the last one's normalisation."""
    inside = {block.call for block in stack.blocks}
    outputs = {trace.same[block.out] for block in stack.blocks[:-1]}
    for one, other in zip(stack.blocks, stack.blocks[1:], strict=False):
        if trace.same[one.out] != trace.same[other.x]:
            stack.between.append(f"the input of {other.name} is not the output of {one.name}")
    for step in trace.steps:
        passes = step.kind == "alias" or not inside.isdisjoint(step.stack)
        if not passes and any(trace.same[each] in outputs for each in step.reads):
            stack.between.append(f"{step.name} ({step.where[0]}:{step.where[1]})")
    last = stack.blocks[-1]
    after = {trace.same[last.out]}
    for step in trace.steps[trace.calls[last.call].last :]:
        if not after.intersection(trace.same[each] for each in step.reads):
            continue
        for number in step.stack:
            call = trace.calls[number]
            reads = after.intersection(trace.same[each] for each in call.reads.values())
            reads = reads if _is_beside(trace, number, last.call) else set()
            if reads and norm_kind(call.module, last.features, last.feature_dim) and number not in inside:
                stack.final = call.module
                return
        if step.kind == "linear":
            return
        after.update(step.gives)
