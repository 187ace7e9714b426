"""Rewrites the functions of a library's block: each residual addition becomes a call of the block's connection.

The new functions are the library's source with these changes:

    residual + h                 ->  _rskip_.at(1).join(residual, h, 0)     (0: the first operand is the skip)
    self.attention(h, mask)      ->  self.attention(h, mask, _rskip_=_rskip_.at(0))     on the way to an addition

They keep the library's globals, closure, defaults and decorators, so what is patched later is seen.
"""

from __future__ import annotations

import ast
import copy
import inspect
import sys
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from types import CellType, CodeType, FunctionType
from typing import Any

from torch import nn

from rskip.nn.tracing import Spot, Step
from rskip.settings.errors import SettingError

NAME = "_rskip_"  # the argument by which the passage through a block reaches its additions
STREAM = 100  # from the number of one stream's first connection in a block to that of the next
TWIN = "_rskip_of_"  # prefix of the names of methods that take it beside the library's
Place = tuple[int, int]  # line, counted from the function's first, and column in bytes: where an expression ends
YOURSELF = "put the connections into the blocks yourself (docs/own_model.md)"  # the advice for what `adapt` refuses


class Unprovable(SettingError):
    """An addition can't be replaced, or a probe of it fails, with the reason."""

    def __init__(self, reason: str) -> None:
        super().__init__("model", f"has additions that can't be replaced: {reason}", advice=YOURSELF)


@dataclass(frozen=True)
class Site:
    """A place in a function that changes.

    :param end: where the expression ends, or only the line and -1 (Python 3.10).
    :param skip: the skip's operand of a sum; None for a call on the way to one.
    :param number: number of the connection in the block; None if it follows from another site.
    :param inner: whether a sum's result goes on to a later sum of the same connection, so that only f remains.
    :param called: for a call of a function, the rewritten one that takes its place. Modules and methods take the
        argument.
    :param bound: whether the call is of a bound method that the function was given, such as
        `apply_chunking_to_forward`. Such functions count the method's arguments, so its twin takes ours.
    :param guards: whether the sum did not run on the example, so that it raises an error instead.
    """

    end: Place
    skip: int | None
    number: int | None = None
    inner: bool = False
    called: Rewrite | None = None
    bound: bool = False
    guards: bool = False


@dataclass(frozen=True)
class Rewrite:
    """A function of a module or class, and the places in it that change."""

    module: str
    name: str
    sites: tuple[Site, ...]


Plan = tuple[tuple[str, Rewrite], ...]  # the new methods of a class, by name


@dataclass(frozen=True)
class Hop:
    """One function on the way from a block to an addition, with the place of its call of the next."""

    owner: nn.Module | None
    function: FunctionType
    end: Place


# A block's sums: the number of the connection, the skip's operand (-1 - operand: another sum of it follows), the way.
Ways = list[tuple[int, int, list[Hop]]]


def hops(spots: Sequence[Spot], block: nn.Module) -> list[Hop]:
    """The functions from the block's call to the sum, outermost first."""
    found: list[Hop] = []
    for spot in spots:
        owner, function = _function_of(spot)
        if function is not None:
            found.append(Hop(owner, function, spot.end))
        elif not found:
            code = spot.code
            where = f"{code.co_filename}:{code.co_firstlineno + spot.end[0]}"
            raise Unprovable(f"{where} adds in {code.co_name}, which is neither a method nor a function of a module")
        forward = getattr(type(block), "forward", None)
        if spot.owner is block and function is not None and leads_to(forward, function.__code__) is function:
            return found[::-1]
    raise Unprovable(f"{type(block).__name__} is not called through its forward")


def _function_of(spot: Spot) -> tuple[nn.Module | None, FunctionType | None]:
    """The function of a frame, with its module if it is the method of that name; None for wrappers.

    A function of a module of Python, and a method of a parent class that `super()` calls, have no owner.
    """
    name = spot.code.co_name
    if isinstance(spot.owner, nn.Module):
        found = leads_to(getattr(type(spot.owner), name, None), spot.code)
        if found is not None:
            return spot.owner, found
        for kind in type(spot.owner).__mro__:
            found = leads_to(vars(kind).get(name), spot.code)
            if found is not None:
                return None, found
    return None, leads_to(spot.names.get(name), spot.code)


def leads_to(function: Any, wanted: CodeType | Rewrite | None, depth: int = 0) -> FunctionType | None:
    """The function that decorators around it wrap: the one with this code, or of this name."""
    if not isinstance(function, FunctionType) or depth > 9:
        return None
    wrapped = getattr(function, "__wrapped__", None)
    if isinstance(wanted, Rewrite):
        is_it = wrapped is None and (function.__module__, function.__qualname__) == (wanted.module, wanted.name)
    else:
        is_it = function.__code__ is wanted
    if is_it:
        return function
    found = (leads_to(each, wanted, depth + 1) for each in (wrapped, *_contents(function)) if each is not function)
    return next((each for each in found if each is not None), None)


def _contents(function: FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not set yet
            continue


def plans(chains: Sequence[Ways], guards: Mapping[CodeType, Collection[Place]]) -> dict[type, Plan]:
    """The new methods of every class on the way from blocks to their additions.

    :param chains: the ways to the sums of each block.
    :param guards: the places of sums that did not run, by their functions.
    """
    ways = [each for sums in chains for each in sums]
    numbers: dict[tuple[Any, ...], set[int]] = {}
    for number, _, way in ways:
        for step in range(len(way)):
            numbers.setdefault(_path(way, step), set()).add(number)
    several = {type(way[0].owner) for number, _, way in ways if number >= STREAM}
    for _, _, way in ways:
        if type(way[0].owner) in several and all(len(numbers[_path(way, step)]) > 1 for step in range(len(way))):
            raise Unprovable(f"{_where(way[-1].function, way[-1].end)} adds to several streams, or several times")
    places: dict[tuple[type | None, str, FunctionType], dict[Place, Site]] = {}
    helpers: dict[tuple[FunctionType, Place], FunctionType] = {}
    for number, side, way in ways:
        for step, hop in enumerate(way):
            mine = numbers[_path(way, step)]
            told = step and len(numbers[_path(way, step - 1)]) == 1
            site = Site(hop.end, None, number if len(mine) == 1 and not told else None)
            if step == len(way) - 1:
                site = replace(site, skip=side if side >= 0 else -1 - side, inner=side < 0)
            elif way[step + 1].owner is None:
                helpers[hop.function, hop.end] = way[step + 1].function
            else:
                site = replace(site, bound=_is_twin(way, step + 1))
            kind = None if hop.owner is None else type(hop.owner)
            name = "" if kind is None else TWIN * _is_twin(way, step) + hop.function.__name__
            sites = places.setdefault((kind, name, hop.function), {})
            for place in guards.get(hop.function.__code__, ()):
                sites[place] = Site(place, 0, guards=True)
            former = sites.get(hop.end)
            if former is not None:
                if (former.skip, former.inner) != (site.skip, site.inner):
                    raise Unprovable(f"{_where(hop.function, hop.end)} adds in two ways")
                site = replace(site, number=site.number if site.number == former.number else None)
            sites[hop.end] = site

    def complete(function: FunctionType, sites: Mapping[Place, Site]) -> Rewrite:
        done = []
        for place, site in sorted(sites.items()):
            called = helpers.get((function, place))
            done.append(site if called is None else replace(site, called=complete(called, places[None, "", called])))
        return Rewrite(function.__module__, function.__qualname__, tuple(done))

    found: dict[type, Plan] = {}
    for (kind, name, function), sites in places.items():
        if kind is not None:
            found[kind] = (*found.get(kind, ()), (name, complete(function, sites)))
    return found


def _is_twin(way: Sequence[Hop], step: int) -> bool:
    """Whether a function calls a method that it was given."""
    return step > 0 and way[step - 1].owner is None and way[step].function.__name__ != "forward"


def _path(way: Sequence[Hop], step: int) -> tuple[Any, ...]:
    return tuple((type(hop.owner), hop.function.__code__, hop.end) for hop in way[: step + 1])


def find_guards(chains: Sequence[Ways], steps: Sequence[Step]) -> dict[CodeType, set[Place]]:
    """The places of sums that did not run on the example, in the functions of those that did.

    A sum under a condition on `self` alone, or beside a part that the module lacks, can't run. One for an optional
    argument, `if encoder_hidden_states is not None`, gets a guard: an error if it runs.

    :param steps: what ran.
    :raises SettingError: a block adds to the skip under another condition that the example did not meet.
    """
    ran: dict[CodeType, set[Place]] = {}
    for spot in (spot for step in steps for spot in step.spots[:1]):
        ran.setdefault(spot.code, set()).add(spot.end)
    found: dict[CodeType, set[Place]] = {}
    last = [(way[-1], side if side >= 0 else -1 - side) for sums in chains for _, side, way in sums]
    for hop, side in {(hop.function, hop.end, type(hop.owner)): (hop, side) for hop, side in last}.values():
        code = hop.function.__code__
        found.setdefault(code, set()).update(_unseen(hop, side, ran.get(code, ())))
    return found


def _unseen(hop: Hop, side: int, ran: Collection[Place]) -> Iterator[Place]:
    """Other sums in a sum's function that add to its skip, operand `side`, did not run, and may run for an argument."""
    function = hop.function
    tree, _, shift = _source(function)
    skip = _operands(_node(tree, Site(hop.end, 0), shift, function))[side]
    if not isinstance(skip, ast.Name):
        return
    for node, tests in _under(tree, []):
        if not _is_sum(node) or any(_is_at(node, place, shift) for place in ran):
            continue
        names = [each.id for each in _operands(node) if isinstance(each, ast.Name)]
        if skip.id in names and not any(_cannot_run(test, hop.owner) for test in tests):
            if not any(_is_given(test, function) for test in tests):
                raise missed_addition(_where(function, (node.lineno - shift[0], 0)))
            yield node.end_lineno - shift[0], -1 if hop.end[1] < 0 else node.end_col_offset + shift[1]


def missed_addition(where: str) -> SettingError:
    problem = f"has an addition at {where} that is not part of a block that adapt found"
    advice = f"pass an example= that runs it, name the blocks with blocks=, or {YOURSELF}"
    return SettingError("model", problem, advice=advice)


def _is_given(node: ast.If, function: FunctionType) -> bool:
    """Whether the condition is that an argument is given: `name is not None`, alone or with others.

    Or that a part returned more for it: `len(outputs) == 3`, as with Flux's IP-Adapter.
    """
    arguments = function.__code__.co_varnames[: function.__code__.co_argcount + function.__code__.co_kwonlyargcount]
    tests = node.test.values if isinstance(node.test, ast.BoolOp) and isinstance(node.test.op, ast.And) else [node.test]
    return any(
        isinstance(test.left, ast.Name) and test.left.id in arguments and isinstance(test.ops[0], ast.IsNot)
        or isinstance(test.left, ast.Call) and isinstance(test.left.func, ast.Name) and test.left.func.id == "len"
        for test in tests
        if isinstance(test, ast.Compare)
    )


def _operands(node: Any) -> list[ast.AST]:
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if isinstance(node, ast.AugAssign):
        return [node.target, node.value]
    is_torch = isinstance(node.func.value, ast.Name) and node.func.value.id == "torch"
    return node.args if is_torch else [node.func.value, *node.args]


def _under(node: ast.AST, tests: list[ast.If]) -> Iterator[tuple[Any, list[ast.If]]]:
    """All nodes, with the conditions above them."""
    for child in ast.iter_child_nodes(node):
        above = [*tests, child] if isinstance(child, ast.If) else tests
        yield child, above
        yield from _under(child, above)


def _cannot_run(node: ast.If, owner: nn.Module | None) -> bool:
    names = {each.id for each in ast.walk(node.test) if isinstance(each, ast.Name)}
    missing = any(
        isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name) and each.value.id == "self"
        and not hasattr(owner, each.attr)
        for each in ast.walk(node)
    )
    return names == {"self"} or (owner is not None and missing)


def changes(plan: Mapping[type, Plan]) -> Iterator[str]:
    """The statements that change, before and after, under the names of their functions."""
    for kind, methods in plan.items():
        for name, rewrite in methods:
            yield from _changes(_original(inspect.getattr_static(kind, name.removeprefix(TWIN)), rewrite), rewrite)


def _changes(raw: FunctionType, rewrite: Rewrite) -> Iterator[str]:
    yield f"{raw.__module__}.{raw.__qualname__}"
    for number, old, new in sorted(_Editor(raw, rewrite, prints=True).lines):
        yield f"{number:5} - {old}"
        yield f"{number:5} + {new}"
    for site in rewrite.sites:
        if site.called is not None:
            yield from _changes(_helper(raw, site.called), site.called)


def rewritten(kind: type, name: str, rewrite: Rewrite) -> Any:
    """The new method, with the old one's decorators."""
    attribute = inspect.getattr_static(kind, name.removeprefix(TWIN))
    raw = _original(attribute, rewrite)
    return _wrapped(attribute, raw, _compiled(raw, rewrite))


def _original(function: Any, rewrite: Rewrite) -> FunctionType:
    """The function with the rewrite's name that decorators wrap."""
    found = leads_to(function, rewrite)
    if found is None:
        raise Unprovable(f"{rewrite.name} of {rewrite.module} is not a function of Python")
    return found


def _wrapped(outer: Any, raw: FunctionType, new: FunctionType) -> Any:
    """The decorators of `raw` around `new`."""
    if outer is raw:
        return new
    cells = []
    for cell in outer.__closure__ or ():
        content = cell.cell_contents if cell != CellType() else None
        holds = content is not outer and leads_to(content, raw.__code__) is not None
        cells.append(CellType(_wrapped(content, raw, new)) if holds else cell)
    if cells == list(outer.__closure__ or ()):
        raise Unprovable(f"a decorator of {raw.__qualname__} is unknown")
    made = FunctionType(outer.__code__, outer.__globals__, outer.__name__, outer.__defaults__, tuple(cells))
    made.__kwdefaults__ = outer.__kwdefaults__
    made.__dict__.update(outer.__dict__)
    made.__wrapped__ = new  # type: ignore[attr-defined]
    return made


@cache
def _compiled(raw: FunctionType, rewrite: Rewrite) -> FunctionType:
    """The function with its sites changed. It has no source, so that nothing compiles the library's in its place."""
    editor = _Editor(raw, rewrite)
    function, arguments = editor.tree, editor.tree.args
    function.decorator_list, function.returns = [], None
    for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg):
        if each is not None:
            each.annotation = None
    arguments.defaults = [ast.Constant(None) for _ in arguments.defaults]
    arguments.kw_defaults = [None if each is None else ast.Constant(None) for each in arguments.kw_defaults]
    arguments.kwonlyargs.append(ast.arg(NAME))
    arguments.kw_defaults.append(ast.Constant(None))
    outside = [*raw.__code__.co_freevars, *editor.helpers]
    factory = ast.parse("def factory(): pass").body[0]
    assert isinstance(factory, ast.FunctionDef)
    factory.args.args = [ast.arg(each) for each in outside]
    factory.body = [function, ast.Return(ast.Name(function.name, ast.Load()))]
    module = ast.increment_lineno(ast.fix_missing_locations(ast.Module([factory], [])), editor.first - 1)
    names: dict[str, Any] = {}
    future = sys.modules["__future__"].annotations.compiler_flag if "__future__" in sys.modules else 0
    filename = f"<{raw.__code__.co_filename} with connections>"
    exec(compile(module, filename, "exec", flags=future, dont_inherit=True), names)
    code = names["factory"](*outside).__code__
    cells = dict(zip(raw.__code__.co_freevars, raw.__closure__ or (), strict=True))
    cells |= {name: CellType(each) for name, each in editor.helpers.items()}
    closure = tuple(cells[name] for name in code.co_freevars)
    made = FunctionType(code, raw.__globals__, raw.__name__, raw.__defaults__, closure)
    made.__kwdefaults__ = {**(raw.__kwdefaults__ or {}), NAME: None}
    made.__qualname__, made.__module__, made.__doc__ = raw.__qualname__, raw.__module__, raw.__doc__
    return made


@cache
def _source(raw: FunctionType) -> tuple[ast.FunctionDef, int, Place]:
    """The function's tree, as if it had no indentation, and its first line's number in the file.

    The last value is added to the line of a place (the source may begin with decorators), and subtracted from its
    column.
    """
    try:
        lines, first = inspect.getsourcelines(raw)
    except (OSError, TypeError):
        raise Unprovable(f"the source of {raw.__module__}.{raw.__qualname__} is not there") from None
    tree = ast.parse(textwrap.dedent("".join(lines))).body[0]
    if not isinstance(tree, ast.FunctionDef):
        raise Unprovable(f"{raw.__qualname__} is not a plain function")
    return tree, first, (raw.__code__.co_firstlineno - first + 1, len(lines[0]) - len(lines[0].lstrip()))


class _Editor(ast.NodeTransformer):
    """Changes the sites of a function.

    :param prints: whether `lines` gets the line number and text of each changed statement, before and after.
    """

    def __init__(self, raw: FunctionType, rewrite: Rewrite, *, prints: bool = False) -> None:
        tree, self.first, shift = _source(raw)
        self.raw, self.prints = raw, prints
        self.helpers: dict[str, Any] = {}
        self.lines: list[tuple[int, str, str]] = []
        tree = copy.deepcopy(tree)
        self.sites = {_node(tree, site, shift, raw): site for site in rewrite.sites}
        self.tree: ast.FunctionDef = self.visit(tree)

    def visit(self, node: Any) -> Any:
        site, old = self.sites.get(node), self._line(node)
        new: Any = self.generic_visit(node)
        if site is not None:
            passage: ast.expr = ast.Name(NAME, ast.Load())
            if site.number is not None:
                passage = _call(_member(passage, "at"), [ast.Constant(site.number)])
            new = self._call(new, passage, site) if site.skip is None else _sum(new, passage, site)
        if old != self._line(new):
            self.lines.append((self.first + node.lineno - 1, old, self._line(new)))
        return new

    def _line(self, node: ast.AST) -> str:
        if not (self.prints and isinstance(node, ast.stmt)):
            return ""
        return " " * node.col_offset + ast.unparse(node).partition("\n")[0]

    def _call(self, node: ast.Call, passage: ast.expr, site: Site) -> ast.Call:
        if site.called is not None:
            name = f"{NAME}{len(self.helpers)}"
            self.helpers[name] = _compiled(_helper(self.raw, site.called), site.called)
            if isinstance(node.func, ast.Attribute) and _is_super(node.func.value):
                node.args.insert(0, ast.Name("self", ast.Load()))
            node.func = ast.Name(name, ast.Load())
        if site.bound:
            self.helpers[f"{NAME}twin"] = _twin
            node.func = _call(ast.Name(f"{NAME}twin", ast.Load()), [node.func])
        node.keywords.append(ast.keyword(NAME, passage))
        return node


def _sum(node: Any, passage: ast.expr, site: Site) -> ast.AST:
    operands: list[Any] = _operands(node)
    if len(operands) != 2 or getattr(node, "keywords", None):
        raise Unprovable("a sum with a factor")
    join = _member(passage, "unseen" if site.guards else "inner" if site.inner else "join")
    if not isinstance(node, ast.AugAssign):
        return ast.copy_location(_call(join, [*operands, ast.Constant(site.skip)]), node)
    read = copy.deepcopy(node.target)
    read.ctx = ast.Load()
    made = ast.Assign([node.target], _call(join, [read, node.value, ast.Constant(site.skip)]))
    return ast.copy_location(made, node)


def _call(function: ast.expr, args: list[ast.expr]) -> ast.Call:
    return ast.Call(function, args, [])


def _member(of: ast.expr, name: str) -> ast.expr:
    return ast.Attribute(of, name, ast.Load())


def _node(tree: ast.FunctionDef, site: Site, shift: Place, raw: FunctionType) -> Any:
    """The expression that ends at the site."""
    is_meant = (lambda node: isinstance(node, ast.Call)) if site.skip is None else _is_sum
    found = [node for node in ast.walk(tree) if is_meant(node) and _is_at(node, site.end, shift)]
    if len(found) != 1:
        raise Unprovable(f"{_where(raw, site.end)} has {'several sums' if found else 'no sum'} that may be meant")
    return found[0]


def _is_at(node: Any, end: Place, shift: Place) -> bool:
    """Whether an expression ends at a place, or contains its line, if that is all that Python 3.10 tells."""
    line, column = end[0] + shift[0], end[1] - shift[1]
    if end[1] < 0:
        return bool(node.lineno <= line <= node.end_lineno)
    return (node.end_lineno, node.end_col_offset) == (line, column)


def _is_sum(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and node.func.attr in ("add", "add_")
    return isinstance(node, (ast.BinOp, ast.AugAssign)) and isinstance(node.op, ast.Add)


def _where(raw: FunctionType, end: Place) -> str:
    return f"{raw.__code__.co_filename}:{raw.__code__.co_firstlineno + end[0]}"


def _is_super(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"


def _twin(method: Any) -> Any:
    """The method beside the library's that takes the passage."""
    return getattr(method.__self__, TWIN + method.__name__)


def _helper(raw: FunctionType, rewrite: Rewrite) -> FunctionType:
    """The function that `raw` calls by name."""
    found: Any = sys.modules[rewrite.module]
    for name in rewrite.name.split("."):
        found = inspect.getattr_static(found, name, None)
    return _original(raw.__globals__.get(rewrite.name, found), rewrite)
