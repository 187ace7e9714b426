"""List pretrained models with their scores.

    rskip zoo list
    rskip zoo list multi30k --connection 2rskip+ln
"""

from __future__ import annotations

import argparse
import json

from rskip.zoo.model_card import list_text
from rskip.zoo.registry import list_models, read_registry


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "patterns", nargs="*", metavar="PATTERN",
        help="part of a name, or a shell pattern; models that match any are listed",
    )  # fmt: skip
    parser.add_argument("--task", help="task of the model: translation, vision, captioning or language_modeling")
    parser.add_argument("--connection", metavar="SPEC", help="connection of the model, such as 2rskip+ln")
    parser.add_argument("--json", action="store_true", help="print complete entries as one JSON object, keyed by name")


def run(args: argparse.Namespace) -> None:
    models = read_registry()
    names = list_models(args.patterns or None, args.task, args.connection, models=models)
    if args.json:
        print(json.dumps({name: models[name].to_json() for name in names}, indent=2, ensure_ascii=False))
    elif names:
        print(list_text(models[name] for name in names))
    else:
        raise ValueError(f"none of the {len(models)} models matches: `rskip zoo list` lists all")
