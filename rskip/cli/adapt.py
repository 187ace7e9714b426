"""Show what `rskip.adapt` changes in a model, without changing it.

    rskip adapt timm:vit_tiny_patch16_224 mhc
    rskip adapt ./my-model 2rskip+ln                # a Hugging Face folder with a config.json
    rskip adapt my_package.my_module:build attnres  # your function, which returns the model
    rskip adapt my_module:build mhc --blocks transformer.h
"""

from __future__ import annotations

import argparse
import copy


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="folder of a Hugging Face model, timm:NAME, or MODULE:FUNCTION that returns a model",
    )
    parser.add_argument("connection", metavar="SPEC", help="connection string, such as 2rskip+ln")
    parser.add_argument("--blocks", metavar="NAME", help="name of the module that contains the blocks (default: all)")


def run(args: argparse.Namespace) -> None:
    """Prints the lines of the model that would change, then what `adapt` did to it."""
    # load PyTorch, which --help doesn't need
    from rskip.comparison.models import build_named
    from rskip.connections import HOST_NEEDS
    from rskip.nn import adapt, adaptation

    model = build_named(args.model)
    adapted = adapt(copy.deepcopy(model), args.connection, blocks=args.blocks, host_supplies=HOST_NEEDS)
    print("The lines that change:\n")
    adapt(model, args.connection, blocks=args.blocks, dry_run=True)
    print(f"\nWith random weights, all probes passed.\n\n{adaptation(adapted)}")
