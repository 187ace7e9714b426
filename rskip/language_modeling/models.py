"""Describes the model of a training by plain values, which config.json and checkpoints hold."""

from __future__ import annotations

from typing import Any

from rskip.language_modeling.settings import TrainingSettings
from rskip.transformer import LanguageModelConfig

_INNER_MULTIPLE = 32  # Llama's FFN dimension is 8/3 of the features, rounded up to a multiple


def model_config(settings: TrainingSettings, vocabulary: int) -> dict[str, Any]:
    """The config of a training's model, for `rskip.checkpoint.untrained_language_model`.

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
