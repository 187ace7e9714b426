"""Arguments and loading that all exports share."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from rskip import cpu, transformer
from rskip.checkpoint.fairseq_languages import language_tokens
from rskip.checkpoint.hugging_face import folder_at
from rskip.cli._model import model_path, saying_what_is_assumed
from rskip.cli._model_arguments import model_settings
from rskip.translation import Translator
from rskip.translation.model_files import StoredWeights, find_checkpoint, find_model_files, model_parts, open_model

if TYPE_CHECKING:
    from rskip.translation.model_files import Stored


def add_export_arguments(parser: argparse.ArgumentParser, *, output: str = "FOLDER") -> None:
    """Adds --output, --model and --force."""
    parser.add_argument(
        "--output", type=Path, required=True, metavar=output, help=f"{output.partition('.')[0].lower()} to write"
    )
    parser.add_argument(
        "--model", required=True, metavar="MODEL", help="model folder, checkpoint, or a name from `rskip zoo list`"
    )
    parser.add_argument("--force", action="store_true", help="replace the files of an earlier export")


def load(args: argparse.Namespace) -> tuple[Translator, transformer.Transformer]:
    """Loads the translator of a checkpoint or of a Hugging Face folder, and its model.

    :raises ValueError: a multilingual model or an ensemble.
    """
    path = find_one(args.model)
    check_one_pair(path, open_model(path))
    with saying_what_is_assumed():
        translator = Translator.from_pretrained(path, **model_settings(args)).in_torch()
    model = translator.model.model if isinstance(translator.model, cpu.CpuTransformer) else translator.model
    assert isinstance(model, transformer.Transformer)
    return translator, model


def check_one_pair(path: Path, stored: Stored) -> None:
    """:raises ValueError: a model with language tokens."""
    assert isinstance(stored, StoredWeights)
    if language_tokens(stored.checkpoint.config) is not None:
        raise ValueError(f"{path} is a multilingual model, which can't be exported: use `rskip translate`")


def find_one(model: str) -> Path:
    """The checkpoint or the Hugging Face folder of one model.

    :raises FileNotFoundError, ValueError: as `find_checkpoint`, or several models.
    """
    parts = model_parts(model)
    path = model_path(parts[0], task="translation")
    if len(parts) > 1 or (path.is_dir() and len(find_model_files(path)) > 1):
        raise ValueError(f"{model} is an ensemble: expected one model to export")
    found = folder_at(path)
    return find_checkpoint(path) if found is None else found
