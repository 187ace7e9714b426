"""Checks whether a checkpoint is of a translation model that rskip supports. The module does not import torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rskip.checkpoint.checkpoint import of_other_task
from rskip.checkpoint.fairseq_languages import MULTILINGUAL_TASKS, language_pairs, parameters_of
from rskip.checkpoint.fairseq_settings import KNOWN, TRANSFORMER_SETTING, UNSUPPORTED
from rskip.settings.errors import SettingError
from rskip.transformer.config import TransformerConfig

Shape = tuple[int, ...]

TASKS = ("translation", "rskip_translation", *MULTILINGUAL_TASKS)
# Matrices of every encoder-decoder Transformer, in all versions of fairseq.
_PARTS = (
    "encoder.layers.0.fc1.weight",
    "decoder.layers.0.encoder_attn.out_proj.weight",
    "encoder.layers.0.self_attn.out_proj.weight",
    "decoder.layers.0.self_attn.out_proj.weight",
)
EMBEDDINGS = {"source": "encoder.embed_tokens.weight", "target": "decoder.embed_tokens.weight"}


def transformer_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """The model's settings in a `Checkpoint.config`, including those that fairseq derives from others."""
    settings = dict(config["model"])
    for name in ("embed_dim", "ffn_embed_dim"):
        if settings.get(f"encoder_{name}") is not None:
            settings.setdefault(f"decoder_{name}", settings[f"encoder_{name}"])
    return settings


def is_stock(settings: Mapping[str, Any]) -> bool:
    """Whether these are settings of fairseq's own Transformer, without a connection of ours."""
    return settings.get("connection") is None and settings.get("encoder_connection") is None


def check_translates(config: Mapping[str, Any], shapes: Mapping[str, Shape]) -> None:
    """Checks whether `build_transformer` supports a checkpoint, apart from the dictionaries.

    :param config: its `Checkpoint.config`.
    :param shapes: the shapes of its tensors.
    """
    settings = transformer_settings(config)
    if config["task"] not in TASKS:
        raise of_other_task(config, "translation")
    if pairs := language_pairs(config):
        shapes = parameters_of(pairs[0], shapes)
    _check_kind(config["arch"], shapes)
    if is_stock(settings):
        check_supported(settings)
    check_known(settings, all_of_model=bool(config.get("structured")))


def _check_kind(arch: str | None, shapes: Mapping[str, Shape]) -> None:
    for name in (*_PARTS, *EMBEDDINGS.values()):
        if len(shapes.get(name, ())) != 2:
            problem = f"a checkpoint of the architecture {arch!r}, which is not an encoder-decoder Transformer"
            raise SettingError("", f"{problem}: it has no matrix {name}")


def check_supported(settings: Mapping[str, Any]) -> None:
    """:raises SettingError: one of fairseq's own Transformers or language models has parts that rskip's lack."""
    features = settings.get("decoder_embed_dim") or TransformerConfig.decoder_embed_dim
    lacking = [name for name in UNSUPPORTED if settings.get(name)]
    lacking += [n for n in ("decoder_input_dim", "decoder_output_dim") if settings.get(n) not in (None, features)]
    if settings.get("decoder_normalize_before") and settings.get("no_decoder_final_norm"):
        lacking.append("no_decoder_final_norm")
    for name in lacking:
        raise SettingError("", f"a checkpoint with {name}={settings[name]!r}, which rskip's models don't have")


def check_known(settings: Mapping[str, Any], *, all_of_model: bool) -> None:
    """Raises SettingError for a setting that rskip doesn't know, because its effect is unknown.

    :param all_of_model: whether all settings are the model's. Otherwise some may be the run's.
    """
    for name, value in settings.items():
        if value and name not in KNOWN and (all_of_model or TRANSFORMER_SETTING.fullmatch(name)):
            problem = f"a checkpoint with {name}={value!r}, a setting that rskip doesn't know"
            raise SettingError("", problem, advice="use fairseq's own programs")


def check_vocabulary(side: str, rows: int, size: int) -> None:
    """Raises `SettingError` for a dictionary of `size` tokens if the model's embedding has another number of rows."""
    if rows != size:
        raise SettingError(
            "",
            f"the dictionaries belong to another model: the {side} one has {size:,} tokens (including 4 special ones), "
            f"the model {rows:,}",
            advice="give the dictionaries of its training data",
        )
