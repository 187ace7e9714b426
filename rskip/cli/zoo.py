"""List, describe and publish pretrained models."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from rskip.cli.main import termination_raises
from rskip.experiments.publish import publish_model
from rskip.records.tables import write_documents
from rskip.tasks.process import CommandFailed
from rskip.zoo.model_card import describe, list_text
from rskip.zoo.publishing import outdated_tables
from rskip.zoo.registry import list_models, read_registry

COMMANDS = ("list", "describe", "publish")


def add_list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "patterns", nargs="*", metavar="PATTERN",
        help="part of a name, or a shell pattern; models that match any are listed",
    )  # fmt: skip
    parser.add_argument("--task", help="task of the model: translation, vision, captioning or language_modeling")
    parser.add_argument("--connection", metavar="SPEC", help="connection of the model, such as 2rskip+ln")
    parser.add_argument("--json", action="store_true", help="print complete entries as one JSON object, keyed by name")


def run_list(args: argparse.Namespace) -> None:
    """List pretrained models with their scores.

        rskip zoo list
        rskip zoo list multi30k --connection 2rskip+ln
    """
    models = read_registry()
    names = list_models(args.patterns or None, args.task, args.connection, models=models)
    if args.json:
        print(json.dumps({name: models[name].to_json() for name in names}, indent=2, ensure_ascii=False))
    elif names:
        print(list_text(models[name] for name in names))
    else:
        raise ValueError(f"none of the {len(models)} models matches: `rskip zoo list` lists all")


def add_describe_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="name of a model from `rskip zoo list`")


def run_describe(args: argparse.Namespace) -> None:
    """Describe a pretrained model: data, scores, origin, licence, files.

        rskip zoo describe transformer_tiny_2rskip_ln.multi30k.en-de
    """
    print(describe(args.name))


def add_publish_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="run, such as multi30k_en_de/2rskip_ln")
    parser.add_argument(
        "--seed", type=int, metavar="N",
        help="seed of the weights (default: the published seed, otherwise as `rskip run --publish`)",
    )  # fmt: skip
    parser.add_argument(
        "--variant", metavar="WORD", help="last part of the model's name, to tell models apart (default: unchanged)"
    )
    parser.add_argument("--url", help="URL of a folder that also has the files (default: unchanged)")
    parser.add_argument("--mirror", help="location of the dataset for scoring, as for `rskip run`")


def run_publish(args: argparse.Namespace) -> int | None:
    """Publish a finished run as a model in checkpoints.json.

    The command writes the weights of one seed to checkpoints/RUN, as safetensors without the state of the optimiser,
    and scores them again. If the model of this seed exists already, only its entry is updated. Metrics are mean and
    standard deviation over the run records of all seeds. Then the command writes the model card and the tables of
    models in README.md and docs/ from checkpoints.json. It changes files only if weights, run records and score match.
    Run it in the project's folder.

        rskip zoo publish multi30k_en_de/2rskip_ln
    """
    try:
        with termination_raises():
            entry = publish_model(args.run, seed=args.seed, url=args.url, variant=args.variant, mirror=args.mirror)
            tables = write_documents(outdated_tables(Path()))
            written = ["checkpoints.json", f"{entry.folder}/README.md", *map(str, tables)]
    except CommandFailed as error:
        print(f"rskip zoo publish: error: {error}", file=sys.stderr)
        return 1
    print(f"{entry.name}: {entry.size / 1e6:.1f} MB in {entry.dtype}; written: {', '.join(written)}")
    return 0
