"""Arguments of commands that read a translation model."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

_TEXT_FLAGS = {
    "lowercase": "lowercase the source",
    "normalise_punctuation": "replace typographic quotes and dashes by plain ones",
    "dash_splits": "Moses: split words at hyphens (@-@)",
    "escape": "Moses: escape quotes and brackets (&quot;)",
}

STEP_FLAGS = {"tokeniser": "--tokenizer", **{name: f"--{name.replace('_', '-')}" for name in _TEXT_FLAGS}}


def add_model_arguments(parser: Any, *, dictionaries_required: bool = False) -> None:
    """Adds --dictionaries, --text and its settings, --source-lang, --target-lang to a parser or a group."""
    where = "" if dictionaries_required else " (default: the model's)"
    parser.add_argument(
        "--dictionaries",
        type=Path,
        required=dictionaries_required,
        metavar="PATH",
        help=f"folder with dict.*.txt, such as data-bin, or the single dictionary of a multilingual model{where}",
    )
    parser.add_argument(
        "--text",
        metavar="PATH",
        help="text pipeline, BPE codes or SentencePiece model; `tokens` if the text is already tokenised (default: "
        "the model's, or next to the dictionaries)",
    )
    parser.add_argument(
        "--tokenizer",
        dest="tokeniser",
        choices=("moses", "none"),
        help="tokeniser before subword units (default of this flag and the next four: from pipeline.json, otherwise "
        "inferred from the dictionary)",
    )
    for name, what in _TEXT_FLAGS.items():
        parser.add_argument(STEP_FLAGS[name], action=argparse.BooleanOptionalAction, default=None, help=what)
    parser.add_argument(
        "--source-lang",
        metavar="LANG",
        help="source language (default: from the checkpoint or file names; a multilingual model needs both, as its "
        "codes or as two letters)",
    )
    parser.add_argument("--target-lang", metavar="LANG", help="target language (default: likewise)")


def model_settings(args: argparse.Namespace) -> dict[str, Any]:
    """These arguments as arguments of `Translator.from_pretrained`."""
    given = {name: getattr(args, name) for name in STEP_FLAGS}
    return {
        "dictionaries": args.dictionaries,
        "text": args.text,
        "text_settings": {name: value for name, value in given.items() if value is not None},
        "source_language": args.source_lang,
        "target_language": args.target_lang,
    }
