"""List all connections, or describe some: formula, options, needs, paper.

    rskip connections
    rskip connections 2rskip+ln sas:gate=single

The list has one line per family, with an example. docs/connections.md explains how to choose one, and
docs/residuals.md what a connection may need from your model.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rskip.connections import ConnectionSpec, Family

# what a family needs in addition to x and f, by the words of `Family.needs`
_NEEDS = {
    "place": "the block position",
    "branch": "norms or scales inside the branch",
    "profile": "a pass over data before training",
    "streams": "several tensors from block to block",
    "history": "the outputs of earlier layers",
}
_INPUTS = (("sequences", -1), ("feature maps", 1))  # with the dimension of their features


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("specs", nargs="*", metavar="SPEC", help="connection, such as 2rskip+ln; default: list all")


def run(args: argparse.Namespace) -> None:
    from rskip.connections import list_connections, parse_connection
    from rskip.machine.terminal import columns

    specs = [parse_connection(text) for text in args.specs]
    if specs:
        blocks = (f"{spec}\n{columns(list(_facts(spec)), left=(0, 1), indent='  ')}" for spec in specs)
        print("\n\n".join(blocks))
    else:
        print(columns([(str(_example(family)), family.formula) for family in list_connections()], left=(0, 1)))


def _example(family: Family) -> ConnectionSpec:
    """A spec of the family: λ = 2, layer normalisation and the default options, where it takes them."""
    from rskip.connections import ConnectionSpec

    norm = "ln" if "ln" in family.norms else family.default_norm
    return ConnectionSpec(family.name, 2 if family.factor else None, norm)


def _facts(spec: ConnectionSpec) -> Iterator[tuple[str, str]]:
    from rskip.connections import find_family
    from rskip.connections.spec import works_on

    family = find_family(spec.family)
    yield "y", family.formula
    if family.factor is not None:
        yield "λ", f"{spec.factor} (possible: {family.factor.values})"
    if family.norms != (None,):
        norms = " or ".join(norm or "none" for norm in family.norms)
        yield "normalisation", f"{spec.norm or 'none'} (possible: {norms})"
    for name, option in family.options.items():
        value = spec.settings[name]
        yield f"option {name}", f"{str(value).lower()} (possible: {option.values})"
    yield "works on", " and ".join(name for name, dim in _INPUTS if works_on(spec, dim))
    yield "needs", ", ".join(_NEEDS[need] for need in family.needs) or "only x and f"
    if spec.fold is not None:
        yield "folds into", f"{spec.fold.connection}, after training"
    yield "source", family.source
    if family.paper.title != family.source:
        yield "paper", ", ".join(filter(None, (family.paper.title, family.paper.url)))
