"""Show the contents of a binarised corpus, or of a translation model.

Of a corpus: sizes, lengths, vocabulary, unknown tokens, examples, and a plot.
Of a model: architecture, sizes, languages, and text pipeline.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from rskip.cli._model import model_path, saying_what_is_assumed
from rskip.cli._options import check_range, refuse_flags
from rskip.files.plot import check_plot
from rskip.translation.description import describe_model, model_lines
from rskip.translation.model_files import find_model_files, foreign_model

EXAMPLES = """examples:
  rskip inspect data-bin/multi30k-en-de
  rskip inspect data-bin/multi30k-en-de --plot lengths.svg --examples 10 --seed 2
  rskip inspect data-bin/multi30k-en-de --json > corpus.json
  rskip inspect transformer_tiny_2rskip_ln.multi30k.en-de
  rskip inspect hf:facebook/nllb-200-distilled-600M"""

MODEL_FILES = (".pt", ".safetensors", ".json")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument(
        "data",
        type=Path,
        metavar="DATA",
        help="folder from `rskip prepare` or fairseq-preprocess, or the folder of its shards (shard1, shard2, ...); or "
        "a translation model, as for `rskip translate --model`",
    )
    parser.add_argument(
        "--dictionaries", type=Path, metavar="PATH", help="dictionaries of a model, if they are not next to it"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="also plot lengths and coverage, to a .png or .svg file"
    )
    parser.add_argument("--examples", type=int, metavar="N", help="number of random pairs to show (default: 3)")
    parser.add_argument(
        "--lopsided", type=int, metavar="N", help="number of pairs to show whose lengths differ most (default: 3)",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, metavar="N", help="random seed for the examples (default: 1)")


def run(args: argparse.Namespace) -> None:
    """Prints the inspection, and draws the plot if --plot is given."""
    numbers = {"examples": args.examples, "lopsided": args.lopsided, "seed": args.seed}
    given = {name: number for name, number in numbers.items() if number is not None}
    args.data = model_path(args.data, task="translation")
    if is_model(args.data):
        flags = {"--plot": args.plot, **{f"--{name}": str(number) for name, number in given.items()}}
        refuse_flags(flags, f"is only for data, but {args.data} is a model")
        with saying_what_is_assumed(quiet=True):
            found = describe_model(args.data, dictionaries=args.dictionaries)
        print(json.dumps(found, indent=2, ensure_ascii=False) if args.json else "\n".join(model_lines(found)))
        return

    # need the extra `translation`, which a model doesn't
    from rskip.corpora.inspection import draw, inspect_data, text_form

    refuse_flags({"--dictionaries": args.dictionaries}, f"is only for a model, but {args.data} is data")
    for name in ("examples", "lopsided"):
        check_range(args, name, 0)
    if args.plot is not None:
        check_plot(args.plot)
    inspection = inspect_data(args.data, **{"lopsided": 3, "examples": 3, "seed": 1, **given})
    if args.plot is not None:
        draw(inspection, args.plot)
    if args.json:
        print(json.dumps(inspection.statistics, indent=2, ensure_ascii=False))
    else:
        print(text_form(inspection.statistics), end="")


def is_model(path: Path) -> bool:
    """Whether it is a translation model, and not a folder of data."""
    if any(path.glob("*.idx")) if path.is_dir() else path.is_file() and path.suffix not in MODEL_FILES:
        return False
    try:
        return bool(find_model_files(path))
    except ValueError:  # several checkpoints
        return True
    except FileNotFoundError:
        if foreign_model(path):
            raise
        return not path.exists() and (":" in str(path) or path.suffix in MODEL_FILES)
