"""Rewrites the functions of a library's block: each residual addition becomes a call of the block's connection.

The new functions are the library's source with these changes:

    residual + h                 ->  _rskip_.at(1).join(residual, h, 0)     (0: the first operand is the skip)
    self.attention(h, mask)      ->  self.attention(h, mask, _rskip_=_rskip_.at(0))     on the way to an addition

They keep the library's globals, closure, defaults and decorators, so what is patched later is seen.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import sys
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from types import CellType, CodeType, FunctionType
from typing import Any

from torch import nn

from rskip.nn.tracing import Spot

NAME = "_rskip_"  # the argument by which the passage through a block reaches its additions
TWIN = "_rskip_of_"  # prefix of the names of methods that take it beside the library's
Place = tuple[int, int]  # line, counted from the function's first, and column in bytes: where an expression ends


class NotRewritable(Exception):
    """An addition can't be replaced, with the reason."""


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


@dataclass(frozen=True)
class Plan:
    """The new methods of a class, by name."""

    methods: tuple[tuple[str, Rewrite], ...]


@dataclass(frozen=True)
class Hop:
    """One function on the way from a block to an addition, with the place of its call of the next."""

    owner: nn.Module | None
    function: FunctionType
    end: Place


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
            raise NotRewritable(f"{where} adds in {code.co_name}, which is neither a method nor a function of a module")
        forward = getattr(type(block), "forward", None)
        if spot.owner is block and function is not None and leads_to(forward, function.__code__) is function:
            return found[::-1]
    raise NotRewritable(f"{type(block).__name__} is not called through its forward")


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


def leads_to(function: Any, code: CodeType | None, depth: int = 0) -> FunctionType | None:
    """The function that decorators around it wrap; the one with this code, if given."""
    if not isinstance(function, FunctionType) or depth > 9:
        return None
    if function.__code__ is code:
        return function
    inner = [getattr(function, "__wrapped__", None), *_contents(function)]
    found = (leads_to(each, code, depth + 1) for each in inner if each is not function)
    return next((each for each in found if each is not None), None)


def _contents(function: FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not set yet
            continue


def plans(
    chains: Sequence[Sequence[tuple[int, int, list[Hop]]]], guards: Mapping[CodeType, Collection[Place]]
) -> dict[type, Plan]:
    """The new methods of every class on the way from blocks to their additions.

    :param chains: of each block the sums: number of the connection, operand of the skip, and the way. A sum whose
        result goes on to another sum of the connection has -1 - operand.
    :param guards: the places of sums that did not run, by their functions.
    """
    ways = [each for sums in chains for each in sums]
    numbers: dict[tuple[Any, ...], set[int]] = {}
    for number, _, way in ways:
        for step in range(len(way)):
            numbers.setdefault(_path(way, step), set()).add(number)
    methods: dict[type, dict[str, dict[Place, Site]]] = {}
    helpers: dict[CodeType, dict[Place, Site]] = {}
    for number, side, way in ways:
        for step, hop in enumerate(way):
            mine = numbers[_path(way, step)]
            told = step and len(numbers[_path(way, step - 1)]) == 1
            site = Site(hop.end, None, number if len(mine) == 1 and not told else None)
            if step == len(way) - 1:
                site = replace(site, skip=side if side >= 0 else -1 - side, inner=side < 0)
            elif way[step + 1].owner is None:
                site = replace(site, called=Rewrite("", "", ()))  # completed below
            else:
                site = replace(site, bound=_is_twin(way, step + 1))
            sites = (
                helpers.setdefault(hop.function.__code__, {})
                if hop.owner is None
                else methods.setdefault(type(hop.owner), {}).setdefault(
                    TWIN * _is_twin(way, step) + hop.function.__name__, {}
                )
            )
            for place in guards.get(hop.function.__code__, ()):
                sites[place] = Site(place, 0, guards=True)
            former = sites.get(hop.end)
            if former is not None:
                if (former.skip, former.inner) != (site.skip, site.inner):
                    raise NotRewritable(f"{_where(hop.function, hop.end)} adds in two ways")
                site = replace(site, number=site.number if site.number == former.number else None)
            sites[hop.end] = site
    functions = {hop.function.__code__: hop.function for _, _, way in ways for hop in way}
    following = {
        (hop.function.__code__, hop.end): after.function.__code__
        for _, _, way in ways
        for hop, after in zip(way, way[1:], strict=False)
    }

    def complete(code: CodeType, sites: Mapping[Place, Site]) -> Rewrite:
        done = []
        for place, site in sorted(sites.items()):
            if site.called is not None:
                called = following[code, place]
                site = replace(site, called=complete(called, helpers[called]))
            done.append(site)
        function = functions[code]
        return Rewrite(function.__module__, function.__qualname__, tuple(done))

    found = {}
    for kind, changed in methods.items():
        raw = {name: _raw(kind, name.removeprefix(TWIN), functions).__code__ for name in changed}
        found[kind] = Plan(tuple((name, complete(raw[name], sites)) for name, sites in changed.items()))
    return found


def _is_twin(way: Sequence[Hop], step: int) -> bool:
    """Whether a function calls a method that it was given."""
    return step > 0 and way[step - 1].owner is None and way[step].function.__name__ != "forward"


def unseen(hop: Hop, side: int, ran: Collection[Place]) -> Iterator[tuple[str, Place | None]]:
    """Other sums of the same skip in a sum's function that did not run: `file:line`, and the place for a guard.

    A sum under a condition on `self` alone, or beside a part that the module lacks, can't run. One for an optional
    argument, `if encoder_hidden_states is not None`, may get a guard.

    :param side: the skip's operand.
    :param ran: the places of all sums of the function that ran.
    """
    function = hop.function
    if hop.end[1] < 0:  # Python 3.10 does not tell columns
        return
    _, _, tree, shift = _source(function)
    nodes = [_node(tree, Site(place, 0), shift, function) for place in ran]
    skip = _operands(_node(tree, Site(hop.end, 0), shift, function))[side]
    if not isinstance(skip, ast.Name):
        return
    for node, tests in _under(tree, []):
        if not _is_sum(node) or any(node is each for each in nodes):
            continue
        names = [each.id for each in _operands(node) if isinstance(each, ast.Name)]
        if skip.id in names and not any(_cannot_run(test, hop.owner) for test in tests):
            where = f"{function.__code__.co_filename}:{function.__code__.co_firstlineno - shift[0] + node.lineno}"
            place = node.end_lineno - shift[0], node.end_col_offset + shift[1]
            yield where, place if any(_is_given(test, function) for test in tests) else None


def _is_given(node: ast.If, function: FunctionType) -> bool:
    """Whether the condition is that an argument is given: `name is not None`, alone or with others."""
    arguments = function.__code__.co_varnames[: function.__code__.co_argcount + function.__code__.co_kwonlyargcount]
    tests = node.test.values if isinstance(node.test, ast.BoolOp) and isinstance(node.test.op, ast.And) else [node.test]
    return any(
        isinstance(test, ast.Compare)
        and isinstance(test.left, ast.Name)
        and test.left.id in arguments
        and isinstance(test.ops[0], ast.IsNot)
        for test in tests
    )


def _operands(node: Any) -> list[ast.AST]:
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if isinstance(node, ast.AugAssign):
        return [node.target, node.value]
    return node.args if _is_torch(node.func.value) else [node.func.value, *node.args]


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


def _path(way: Sequence[Hop], step: int) -> tuple[Any, ...]:
    return tuple((type(hop.owner), hop.function.__code__, hop.end) for hop in way[: step + 1])


def _raw(kind: type, name: str, functions: Mapping[CodeType, FunctionType]) -> FunctionType:
    for code in functions:
        found = leads_to(getattr(kind, name), code) if code.co_name == name else None
        if found is not None:
            return found
    raise NotRewritable(f"{kind.__qualname__}.{name} is not its own")


def changes(plan: Mapping[type, Plan]) -> Iterator[str]:
    """The lines that change, before and after, under the names of their functions."""
    for kind, methods in plan.items():
        for name, rewrite in methods.methods:
            yield from _changes(_original(inspect.getattr_static(kind, name.removeprefix(TWIN)), rewrite), rewrite)


def _changes(raw: FunctionType, rewrite: Rewrite) -> Iterator[str]:
    source, first, *_ = _source(raw)
    edited, _ = _edited(raw, rewrite)
    yield f"{raw.__module__}.{raw.__qualname__}"
    for number, (old, new) in enumerate(zip(source.splitlines(), edited.splitlines(), strict=True), start=first):
        if old != new:
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
    pending = [function]
    while pending:
        each = pending.pop(0)
        if not isinstance(each, FunctionType):
            continue
        wraps = hasattr(each, "__wrapped__")
        if not wraps and (each.__module__, each.__qualname__) == (rewrite.module, rewrite.name):
            return each
        pending += [getattr(each, "__wrapped__", None), *(inner for inner in _contents(each) if inner is not each)]
    raise NotRewritable(f"{rewrite.name} of {rewrite.module} is not a function of Python")


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
        raise NotRewritable(f"a decorator of {raw.__qualname__} is unknown")
    made = FunctionType(outer.__code__, outer.__globals__, outer.__name__, outer.__defaults__, tuple(cells))
    made.__kwdefaults__ = outer.__kwdefaults__
    made.__dict__.update(outer.__dict__)
    made.__wrapped__ = new  # type: ignore[attr-defined]
    return made


@cache
def _compiled(raw: FunctionType, rewrite: Rewrite) -> FunctionType:
    """The function with its sites changed."""
    edited, helpers = _edited(raw, rewrite)
    filename = f"<{raw.__code__.co_filename} with connections, {raw.__qualname__} {abs(hash(rewrite)):x}>"
    linecache.cache[filename] = (len(edited), None, edited.splitlines(keepends=True), filename)
    tree = ast.parse(edited)
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    function.decorator_list, function.returns = [], None
    arguments = function.args
    for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg):
        if each is not None:
            each.annotation = None
    arguments.defaults = [ast.Constant(None) for _ in arguments.defaults]
    arguments.kw_defaults = [None if each is None else ast.Constant(None) for each in arguments.kw_defaults]
    arguments.kwonlyargs.append(ast.arg(NAME))
    arguments.kw_defaults.append(ast.Constant(None))
    outside = [*raw.__code__.co_freevars, *helpers]
    factory = ast.parse("def factory(): pass").body[0]
    assert isinstance(factory, ast.FunctionDef)
    factory.args.args = [ast.arg(each) for each in outside]
    factory.body = [function, ast.Return(ast.Name(function.name, ast.Load()))]
    module = ast.fix_missing_locations(ast.Module([factory], []))
    names: dict[str, Any] = {}
    future = sys.modules["__future__"].annotations.compiler_flag if "__future__" in sys.modules else 0
    exec(compile(module, filename, "exec", flags=future, dont_inherit=True), names)
    code = names["factory"](*outside).__code__
    cells = dict(zip(raw.__code__.co_freevars, raw.__closure__ or (), strict=True))
    cells |= {name: CellType(each) for name, each in helpers.items()}
    closure = tuple(cells[name] for name in code.co_freevars)
    made = FunctionType(code, raw.__globals__, raw.__name__, raw.__defaults__, closure)
    made.__kwdefaults__ = {**(raw.__kwdefaults__ or {}), NAME: None}
    made.__qualname__, made.__module__, made.__doc__ = raw.__qualname__, raw.__module__, raw.__doc__
    return made


@cache
def _source(raw: FunctionType) -> tuple[str, int, ast.FunctionDef, Place]:
    """The function's source without indentation, its first line's number in the file, and its tree.

    The last value is added to the line of a place (the source may begin with decorators), and subtracted from its
    column.
    """
    try:
        lines, first = inspect.getsourcelines(raw)
    except (OSError, TypeError):
        raise NotRewritable(f"the source of {raw.__module__}.{raw.__qualname__} is not there") from None
    source = textwrap.dedent("".join(lines))
    tree = ast.parse(source).body[0]
    if not isinstance(tree, ast.FunctionDef):
        raise NotRewritable(f"{raw.__qualname__} is not a plain function")
    return source, first, tree, (raw.__code__.co_firstlineno - first + 1, len(lines[0]) - len(lines[0].lstrip()))


def _edited(raw: FunctionType, rewrite: Rewrite) -> tuple[str, dict[str, Any]]:
    source, _, tree, shift = _source(raw)
    text = _Text(source)
    helpers: dict[str, Any] = {}
    for site in rewrite.sites:
        node = _node(tree, site, shift, raw)
        passage = NAME if site.number is None else f"{NAME}.at({site.number})"
        if site.skip is not None:
            _edit_sum(text, node, passage, site)
        else:
            assert isinstance(node, ast.Call)
            _edit_call(text, node, passage, site, raw, helpers)
    return text.result(), helpers


def _node(tree: ast.FunctionDef, site: Site, shift: tuple[int, int], raw: FunctionType) -> Any:
    """The expression that ends at the site."""
    line, column = site.end[0] + shift[0], site.end[1] - shift[1]
    found = []
    for node in ast.walk(tree):
        if not (_is_sum(node) if site.skip is not None else isinstance(node, ast.Call)):
            continue
        assert isinstance(node, (ast.expr, ast.stmt)) and node.end_lineno is not None
        ends_there = (node.end_lineno, node.end_col_offset) == (line, column)
        if ends_there if site.end[1] >= 0 else node.lineno <= line <= node.end_lineno:
            found.append(node)
    if len(found) != 1:
        raise NotRewritable(f"{_where(raw, site.end)} has {'several sums' if found else 'no sum'} that may be meant")
    return found[0]


def _is_sum(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and node.func.attr in ("add", "add_")
    return isinstance(node, (ast.BinOp, ast.AugAssign)) and isinstance(node.op, ast.Add)


def _where(raw: FunctionType, end: Place) -> str:
    return f"{raw.__code__.co_filename}:{raw.__code__.co_firstlineno + end[0]}"


class _Text:
    """A source with changes that do not overlap, by their places in bytes."""

    def __init__(self, source: str) -> None:
        self.lines = source.encode().splitlines(keepends=True)
        self.changes: list[tuple[int, int, int, bytes]] = []

    def offset(self, line: int, column: int) -> int:
        return sum(map(len, self.lines[: line - 1])) + column

    def start(self, node: Any) -> int:
        return self.offset(node.lineno, node.col_offset)

    def end(self, node: Any) -> int:
        return self.offset(node.end_lineno, node.end_col_offset)

    def between(self, start: int, end: int) -> bytes:
        return b"".join(self.lines)[start:end]

    def change(self, start: int, end: int, new: str, *, opens: bool = False) -> None:
        """Replaces a part. At one place, what opens an outer expression comes first, and what closes it last."""
        self.changes.append((start, end, -len(self.changes) if opens else len(self.changes), new.encode()))

    def result(self) -> str:
        text = b"".join(self.lines)
        for start, end, _, new in sorted(self.changes, reverse=True):
            text = text[:start] + new + text[end:]
        return text.decode()


def _edit_sum(text: _Text, node: Any, passage: str, site: Site) -> None:
    join = f"{passage}.{'unseen' if site.guards else 'inner' if site.inner else 'join'}("
    if isinstance(node, ast.BinOp):
        left, right = text.end(node.left), text.start(node.right)
        between = _code(text.between(left, right))
        operator = left + between.index(b"+")
        blank = len(between[: operator - left]) - len(between[: operator - left].rstrip(b" "))
        text.change(text.start(node), text.start(node), join, opens=True)
        text.change(operator - blank, operator + 1, ",")
        text.change(text.end(node), text.end(node), f", {site.skip})")
    elif isinstance(node, ast.AugAssign):
        target = text.between(text.start(node.target), text.end(node.target)).decode()
        between = text.between(text.end(node.target), text.start(node.value))
        operator = text.end(node.target) + _code(between).index(b"+=")
        text.change(operator, operator + 2, f"= {join}{target},")
        text.change(text.end(node), text.end(node), f", {site.skip})")
    elif len(node.args) == 2 and not node.keywords and _is_torch(node.func.value):
        text.change(text.start(node.func), text.end(node.func), join[:-1])
        text.change(text.end(node) - 1, text.end(node) - 1, f", {site.skip}")
    elif len(node.args) == 1 and not node.keywords:
        text.change(text.start(node), text.start(node), join, opens=True)
        bracket = text.end(node.func.value) + text.between(text.end(node.func.value), text.end(node)).index(b"(")
        text.change(text.end(node.func.value), bracket + 1, ", ")
        text.change(text.end(node) - 1, text.end(node) - 1, f", {site.skip}")
    else:
        raise NotRewritable("a sum with a factor")


def _is_torch(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "torch"


def _code(text: bytes) -> bytes:
    """The text with its comments blanked, so that places stay."""
    lines = text.split(b"\n")
    return b"\n".join(line.split(b"#")[0].ljust(len(line)) for line in lines)


def _edit_call(
    text: _Text, node: ast.Call, passage: str, site: Site, raw: FunctionType, helpers: dict[str, Any]
) -> None:
    if site.called is not None:
        name = f"{NAME}{len(helpers)}"
        helpers[name] = _compiled(_helper(raw, site.called), site.called)
        text.change(text.start(node.func), text.end(node.func), name)
        if isinstance(node.func, ast.Attribute) and _is_super(node.func.value):
            bracket = text.end(node.func) + text.between(text.end(node.func), text.end(node)).index(b"(") + 1
            text.change(bracket, bracket, "self, " if node.args or node.keywords else "self")
    if site.bound:
        helpers[f"{NAME}twin"] = _twin
        text.change(text.start(node.func), text.start(node.func), f"{NAME}twin(", opens=True)
        text.change(text.end(node.func), text.end(node.func), ")")
    last = max([text.end(each) for each in (*node.args, *(each.value for each in node.keywords))], default=None)
    end = text.end(node) - 1
    comma = "" if last is None or b"," in _code(text.between(last, end)) else ", "
    text.change(end, end, f"{comma}{NAME}={passage}")


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
