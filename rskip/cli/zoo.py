"""List, describe and publish pretrained models.

    rskip zoo list
    rskip zoo list multi30k --connection 2rskip+ln
    rskip zoo describe transformer_tiny_2rskip_ln.multi30k.en-de
    rskip zoo publish multi30k_en_de_2rskip_ln
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from rskip.cli.main import termination_raises

LIST = "List pretrained models, with the figure of each."
DESCRIBE = "Describe a pretrained model: data, figures, where it comes from, licence, files."
PUBLISH = """Make a model of the registry, checkpoints.json, of a finished run. Its weights are those in
checkpoints/RUN; where there are none, or of another seed than --seed, or they don't fit the records of the run, they
are made from runs/RUN first, as `rskip run --publish` does it: without the optimiser's state, as safetensors, scored
again. Figures are the mean and the spread over the records of all its seeds, results/RUN/*.json. Files, record and
figures are checked against each other before anything is replaced. The model's card is written beside its weights, and
the tables of models in README.md and docs/ are brought up to date. Run it in the project's folder."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    listing = actions.add_parser("list", help=LIST, description=LIST, allow_abbrev=False)
    listing.add_argument(
        "patterns", nargs="*", metavar="PATTERN", help="text that names hold, or a shell pattern; one has to match"
    )
    listing.add_argument("--task", metavar="TASK", help="translation or image-classification")
    listing.add_argument("--connection", metavar="SPEC", help="of the model, such as 2rskip+ln")
    listing.add_argument("--json", action="store_true", help="print whole entries, by name, as one JSON object")

    describing = actions.add_parser("describe", help=DESCRIBE, description=DESCRIBE, allow_abbrev=False)
    describing.add_argument("name", metavar="NAME", help="as `rskip zoo list` shows it")

    publishing = actions.add_parser(
        "publish",
        help=PUBLISH.partition(". ")[0].replace("\n", " ") + ".",
        description=PUBLISH,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    publishing.add_argument("run", metavar="RUN", help="name of the run's folder under checkpoints/ and results/")
    publishing.add_argument(
        "--seed", type=int, metavar="N", help="whose weights (default: those published, else as `rskip run` chooses)"
    )
    publishing.add_argument(
        "--variant", metavar="WORD", help="ends the model's name, to tell it from another's (default: as it was)"
    )
    publishing.add_argument("--url", help="of a folder where the files are served too (default: as it was)")
    publishing.add_argument("--mirror", help="where the dataset is, for scoring, as `rskip run` takes it")


def run(args: argparse.Namespace) -> int | None:
    """Does what the action says; exit status 1 where scoring the weights failed by itself."""
    action: Callable[[argparse.Namespace], int | None]
    action = {"list": _list, "describe": _describe, "publish": _publish}[args.action]
    return action(args)


def _list(args: argparse.Namespace) -> None:
    import json

    from rskip.zoo.model_card import list_text
    from rskip.zoo.registry import list_models, read_registry

    models = read_registry()
    names = list_models(args.patterns or None, args.task, args.connection, models=models)
    if args.json:
        print(json.dumps({name: models[name].to_json() for name in names}, indent=2, ensure_ascii=False))
    elif names:
        print(list_text(models[name] for name in names))
    else:
        raise ValueError(f"none of the {len(models)} models matches: `rskip zoo list` shows all")


def _describe(args: argparse.Namespace) -> None:
    from rskip.zoo.model_card import describe

    print(describe(args.name))


def _publish(args: argparse.Namespace) -> int:
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
        print(f"rskip zoo: error: {error}", file=sys.stderr)
        return 1
    except SettingError as error:
        raise ValueError(error.sentence(f"--{error.name}" if error.name in ("url", "variant") else None)) from None
    print(f"{entry.name}: {entry.size / 1e6:.1f} MB in {entry.dtype}; written: {', '.join(written)}")
    return 0
