"""Publish a finished run as a model in checkpoints.json.

The command writes the weights of one seed to checkpoints/RUN, as safetensors without the state of the optimiser, and
scores them again. If the model of this seed exists already, only its entry is updated. Metrics are mean and standard
deviation over the run records of all seeds. Then the command writes the model card and the tables of models in
README.md and docs/ from checkpoints.json. It changes files only if weights, run records and score match. Run it in the
project's folder.

    rskip zoo publish multi30k_en_de/2rskip_ln
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rskip.cli.main import termination_raises
from rskip.experiments.publish import publish_model
from rskip.records.tables import write_documents
from rskip.tasks.process import CommandFailed
from rskip.zoo.publishing import outdated_tables


def add_arguments(parser: argparse.ArgumentParser) -> None:
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


def run(args: argparse.Namespace) -> int:
    """Publishes the run; exit status 1 if scoring the weights failed by itself."""
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
