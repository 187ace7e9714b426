"""Builds, reads and describes the language model of a checkpoint."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from rskip.checkpoint.checkpoint import Checkpoint, of_other_task
from rskip.checkpoint.config_file import WEIGHTS
from rskip.checkpoint.files import read_checkpoint
from rskip.checkpoint.hugging_face import folder_at, hub_folder, is_hub_name
from rskip.checkpoint.hugging_face.language_models import read_hugging_face_language_model
from rskip.checkpoint.stock import from_old_stock
from rskip.checkpoint.stock_names import from_stock, stock_connection
from rskip.checkpoint.transformer import check_connections, check_sizes, load_parameters
from rskip.checkpoint.translation import check_known, check_supported
from rskip.settings.check import convert
from rskip.settings.errors import SettingError, errors_about
from rskip.settings.kinds import Size
from rskip.transformer import LanguageModel, LanguageModelConfig
from rskip.transformer.undrawn import undrawn

TASK = "language_modeling"


def read_language_model(path: str | os.PathLike[str], *, as_stored: bool = False) -> LanguageModel:
    """Reads a language model: our own file or folder, or a Hugging Face folder of GPT-2 or Llama.

    :param path: a file, a folder, or `hf:OWNER/NAME` for a model of the Hugging Face Hub.
    :param as_stored: as for `build_language_model`.
    :raises FileNotFoundError: a file is missing.
    :raises ValueError: a damaged file, or a checkpoint of something else.
    """
    path = hub_folder(path) if is_hub_name(path) else Path(path)
    if (folder := folder_at(path)) is not None:
        checkpoint = read_hugging_face_language_model(folder)
    else:
        checkpoint = read_checkpoint(path / WEIGHTS if path.is_dir() else path)
    with errors_about(path):
        return build_language_model(checkpoint, as_stored=as_stored)


def build_language_model(checkpoint: Checkpoint, *, as_stored: bool = False) -> LanguageModel:
    """Builds the language model of a checkpoint, in eval mode and without gradients.

    :param checkpoint: its `config["model"]` is the argument of `untrained_language_model`.
    :param as_stored: as for `build_transformer`.
    :raises SettingError: the checkpoint has another task, or weights that do not fit its settings.
    """
    settings = checkpoint.config["model"]
    if checkpoint.config["task"] != TASK:
        raise of_other_task(checkpoint.config, TASK)
    if connection := settings.get("decoder_connection"):
        check_connections({"decoder_connection": connection})
    with undrawn():
        model = untrained_language_model(settings, checkpoint)
    described = f"the language model that its settings describe ({model.connection})"
    return load_parameters(model, checkpoint.model, described, as_stored=as_stored)


def untrained_language_model(config: Mapping[str, Any], checkpoint: Checkpoint | None = None) -> LanguageModel:
    """The model of a config.

    :param config: the fields of `LanguageModelConfig`, `vocabulary`, and `padding` if the model has a padding token.
    :param checkpoint: weights that the model must not exceed, checked before it takes memory.
    :raises SettingError: a value is wrong, or a key is unknown.
    """
    own = dict(config)
    vocabulary = convert(own.pop("vocabulary", None), Size, name="vocabulary")
    padding = convert(own.pop("padding", None), int | None, name="padding")  # type: ignore[arg-type]
    settings = LanguageModelConfig.from_dict(own)
    if checkpoint is not None:
        check_sizes(settings, checkpoint.model)
    return LanguageModel(settings, vocabulary, padding)


def language_model_of_fairseq(checkpoint: Checkpoint, vocabulary: int) -> Checkpoint:
    """The checkpoint of a language model that fairseq trained, in the form that `build_language_model` reads.

    The architecture is one of rskip's, or fairseq's own `transformer_lm`.

    :param vocabulary: size of its dictionary.
    """
    settings, weights = checkpoint.config["model"], checkpoint.model
    connection = settings.get("decoder_connection") or settings.get("connection")
    if not connection and "decoder.layers.0.self_attn.out_proj.weight" not in weights:
        problem = f"a checkpoint of the architecture {checkpoint.config['arch']!r}"
        raise SettingError("", problem, expected="transformer_lm, or one of rskip's, such as transformer_lm_rskip_ln")
    if not connection:
        check_supported(settings)
        check_known(settings, all_of_model=bool(checkpoint.config.get("structured")))
        connection = stock_connection(normalize_before=bool(settings.get("decoder_normalize_before")))
        tied = bool(settings.get("share_decoder_input_output_embed"))
        weights = from_stock(from_old_stock(weights, tied_output=tied))
    known = {field.name for field in fields(LanguageModelConfig)}
    values = {name: value for name, value in settings.items() if name in known and value is not None}
    values |= {"decoder_connection": connection, "checkpoint_activations": False}
    config = {"vocabulary": vocabulary, "padding": 1, **LanguageModelConfig.from_dict(values).to_dict()}
    return replace(checkpoint, model=dict(weights), config={**checkpoint.config, "model": config})


def language_model_checkpoint(model: LanguageModel, *, arch: str | None = None) -> Checkpoint:
    """The checkpoint of a language model, for `write_model` or `write_checkpoint`."""
    settings = {"vocabulary": model.vocabulary_size, "padding": model.padding, **model.config.to_dict()}
    config = {"task": TASK, "arch": arch, "source_lang": None, "target_lang": None, "model": settings}
    return Checkpoint(model=model.state_dict(), config=config)
