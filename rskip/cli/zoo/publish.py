"""Make a model of checkpoints.json of a finished run.

The run's weights, of one seed, are written to checkpoints/RUN without the optimiser's state, as safetensors, and scored
again. Where the model is there already, of this seed, only its entry is made anew. Metrics are mean and standard
deviation over the records of all the run's seeds. Then the model's card and the tables of models in README.md and docs/
are made from checkpoints.json. Nothing is replaced unless files, records and score fit each other. Run it in the
project's folder.

    rskip zoo publish multi30k_en_de/2rskip_ln
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rskip.cli.main import termination_raises


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="the run's address, such as multi30k_en_de/2rskip_ln")
    parser.add_argument(
        "--seed", type=int, metavar="N", help="whose weights (default: those published, else as `rskip run` chooses)"
    )
    parser.add_argument(
        "--variant", metavar="WORD", help="ends the model's name, to tell it from another's (default: as it was)"
    )
    parser.add_argument("--url", help="of a folder where the files are served too (default: as it was)")
    parser.add_argument("--mirror", help="where the dataset is, for scoring, as `rskip run` takes it")


def run(args: argparse.Namespace) -> int:
    """Publishes the run; exit status 1 if scoring the weights failed by itself."""
    from rskip.experiments.publish import publish_model
    from rskip.records.tables import write_documents
    from rskip.settings.errors import SettingError
    from rskip.tasks.process import CommandFailed
    from rskip.zoo.publishing import outdated_tables

    try:
        with termination_raises():
            entry = publish_model(args.run, seed=args.seed, url=args.url, variant=args.variant, mirror=args.mirror)
            tables = write_documents(outdated_tables(Path()))
            written = ["checkpoints.json", f"{entry.folder}/README.md", *map(str, tables)]
    except CommandFailed as error:
        print(f"rskip zoo publish: error: {error}", file=sys.stderr)
        return 1
    except SettingError as error:
        raise ValueError(error.sentence(f"--{error.name}" if error.name in ("url", "variant") else None)) from None
    print(f"{entry.name}: {entry.size / 1e6:.1f} MB in {entry.dtype}; written: {', '.join(written)}")
    return 0
