"""Show what `rskip.adapt` changes in a model, without changing it.

    rskip adapt timm:vit_tiny_patch16_224 mhc
    rskip adapt ./my-model 2rskip+ln                # a Hugging Face folder with a config.json
    rskip adapt my_package.my_module:build attnres  # your function, which returns the model
    rskip adapt my_module:build mhc --blocks transformer.h
"""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="folder of a Hugging Face model, timm:NAME, or MODULE:FUNCTION that returns a model",
    )
    parser.add_argument("connection", metavar="SPEC", help="connection string, such as 2rskip+ln")
    parser.add_argument("--blocks", metavar="NAME", help="name of the module that contains the blocks (default: all)")


def run(args: argparse.Namespace) -> None:
    from rskip.cli._adapt import show_changes

    show_changes(args.model, args.connection, args.blocks)
