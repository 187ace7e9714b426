"""Describe a pretrained model: data, scores, origin, licence, files.

    rskip zoo describe transformer_tiny_2rskip_ln.multi30k.en-de
"""

from __future__ import annotations

import argparse

from rskip.zoo.model_card import describe


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="name of a model from `rskip zoo list`")


def run(args: argparse.Namespace) -> None:
    print(describe(args.name))
