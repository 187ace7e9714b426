"""List all connections, or describe some: formula, options, needs, paper.

    rskip connections
    rskip connections 2rskip+ln sas:gate=single

The list has one line per family, with an example, and then one per model, with its connection.
docs/which_connection.md explains how to choose one, and docs/own_model.md what a connection may need from your model.
"""

from __future__ import annotations

import argparse

from rskip.machine.terminal import columns


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("specs", nargs="*", metavar="SPEC", help="connection, such as 2rskip+ln; default: list all")


def run(args: argparse.Namespace) -> None:
    # load PyTorch, which --help doesn't need
    from rskip.connections import list_connections, parse_connection
    from rskip.formulas.description import example, facts
    from rskip.formulas.registry import MODELS

    specs = [parse_connection(text) for text in args.specs]
    if specs:
        blocks = (f"{spec}\n{columns(list(facts(spec)), left=(0, 1), indent='  ')}" for spec in specs)
        print("\n\n".join(blocks))
    else:
        print(columns([(str(example(family)), family.formula) for family in list_connections()], left=(0, 1)))
        print("\nby model:\n" + columns(list(MODELS.items()), left=(0, 1)))
