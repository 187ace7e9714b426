"""The arguments that say which model, and what belongs to it. Not a subcommand."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add_model_arguments(parser: Any, *, dictionaries_required: bool = False) -> None:
    """Adds --dictionaries, --text, --source-lang and --target-lang to a parser or a group of one."""
    where = "" if dictionaries_required else " (default: the model's)"
    parser.add_argument(
        "--dictionaries",
        type=Path,
        required=dictionaries_required,
        metavar="FOLDER",
        help=f"with dict.*.txt, such as data-bin{where}",
    )
    parser.add_argument(
        "--text",
        metavar="PATH",
        help="text pipeline, BPE codes, SentencePiece model, or `tokens` for none (default: the model's, or beside the "
        "dictionaries)",
    )
    parser.add_argument("--source-lang", metavar="LANG", help="default: as the checkpoint or the files' names say")
    parser.add_argument("--target-lang", metavar="LANG")


def model_settings(args: argparse.Namespace) -> dict[str, Any]:
    """These arguments as `Translator.from_pretrained` takes them."""
    return {
        "dictionaries": args.dictionaries,
        "text": args.text,
        "source_language": args.source_lang,
        "target_language": args.target_lang,
    }
