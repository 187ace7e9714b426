"""Builds language models from plain values, which config.json and checkpoints hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rskip.language_modeling.settings import TrainingSettings
from rskip.settings.check import convert
from rskip.settings.errors import SettingError
from rskip.settings.kinds import Size
from rskip.transformer import LanguageModel, LanguageModelConfig

_INNER_MULTIPLE = 32  # Llama's FFN dimension is 8/3 of the features, rounded up to a multiple


def model_config(settings: TrainingSettings, vocabulary: int) -> dict[str, Any]:
    """The config of a training's model: the fields of `LanguageModelConfig`, and `vocabulary`.

    :param vocabulary: size of the dictionary.
    """
    common: dict[str, Any] = {
        "decoder_embed_dim": settings.features,
        "decoder_attention_heads": settings.heads,
        "decoder_layers": settings.layers,
        "decoder_connection": settings.connection,
        "dropout": settings.dropout,
        "attention_dropout": settings.dropout,
        "share_decoder_input_output_embed": True,
        "no_scale_embedding": True,
        "max_target_positions": settings.context,
        "initial_std": 0.02,
    }
    of_shape: dict[str, Any]
    if settings.shape == "gpt2":
        of_shape = {
            "decoder_ffn_embed_dim": 4 * settings.features,
            "activation_fn": "gelu",
            "decoder_learned_pos": True,
            "biases": settings.bias,
        }
    else:
        of_shape = {
            "decoder_ffn_embed_dim": -(-8 * settings.features // (3 * _INNER_MULTIPLE)) * _INNER_MULTIPLE,
            "activation_fn": "swish",
            "gated_ffn": True,
            "rotary_theta": 10_000.0,
            "biases": False,
        }
    return {"vocabulary": vocabulary, **LanguageModelConfig(**common, **of_shape).to_dict()}


def build_model(config: Mapping[str, Any]) -> LanguageModel:
    """The model of a config.

    :param config: the fields of `LanguageModelConfig`, `vocabulary`, and `padding` if the model has a padding token.
    :raises SettingError: a value is wrong, or a key is unknown.
    """
    own = dict(config)
    if "vocabulary" not in own:
        raise SettingError("vocabulary", "is missing")
    vocabulary = convert(own.pop("vocabulary"), Size, name="vocabulary")
    padding = convert(own.pop("padding", None), int | None, name="padding")  # type: ignore[arg-type]
    return LanguageModel(LanguageModelConfig.from_dict(own), vocabulary, padding)
