"""Reads the weights of Hugging Face's LlamaForCausalLM."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from torch import Tensor

from rskip.checkpoint.checkpoint import Checkpoint
from rskip.checkpoint.hugging_face.folder import CONFIG, Folder
from rskip.checkpoint.hugging_face.language_models import language_model_of, refuse_settings
from rskip.checkpoint.hugging_face.stacks import ACTIVATIONS, OUTPUT, read_settings
from rskip.settings.errors import SettingError

_NAMES = {
    "model.embed_tokens.weight": "decoder.embed_tokens.weight",
    "model.norm.weight": "decoder.layer_norm.weight",
    OUTPUT: "decoder.output_projection.weight",
}
_PART = re.compile(r"model\.layers\.(\d+)\.(.+)\.(weight|bias)")
_PARTS = {
    "input_layernorm": "self_attn_connection.norm",
    "post_attention_layernorm": "ffn_connection.norm",
    "self_attn.o_proj": "self_attn.out_proj",
    "mlp.gate_proj": "fc1",
    "mlp.down_proj": "fc2",
    "mlp.up_proj": "fc3",
}
_FREQUENCIES = re.compile(r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq")  # in files of early versions
# keys of `rope_parameters`, or `rope_scaling` in files of early versions, by kind: their names and ours
_SCALING = {
    "default": {},
    "linear": {"factor": "factor"},
    "llama3": {
        "factor": "factor",
        "low_freq_factor": "low_freq_factor",
        "high_freq_factor": "high_freq_factor",
        "original_max_position_embeddings": "original_positions",
    },
}


class LlamaSettings(msgspec.Struct, kw_only=True):
    """What config.json says of the model; the defaults are those of transformers."""

    vocab_size: int = 32000
    hidden_size: int = 4096
    intermediate_size: int = 11008
    num_hidden_layers: int = 32
    num_attention_heads: int = 32
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    hidden_act: str = "silu"
    max_position_embeddings: int = 2048
    rms_norm_eps: float = 1e-6
    attention_dropout: float = 0.0
    attention_bias: bool = False
    mlp_bias: bool = False
    tie_word_embeddings: bool = False
    rope_theta: float = 10000.0
    rope_scaling: dict[str, Any] | None = None
    rope_parameters: dict[str, Any] | None = None
    partial_rotary_factor: float = 1.0
    sliding_window: int | None = None


def read(folder: Folder) -> Checkpoint:
    """The checkpoint of a Llama folder. See `LanguageModelReader`."""
    config = read_settings(folder, LlamaSettings)
    width = config.hidden_size // max(config.num_attention_heads, 1)
    usual = {"head_dim": (None, width), "mlp_bias": config.attention_bias, "sliding_window": None}
    refuse_settings(config, {**usual, "partial_rotary_factor": 1.0}, folder)
    theta, scaling = _rotary(config, folder)
    return language_model_of(
        folder,
        dict(_renamed(folder.tensors())),
        vocabulary=config.vocab_size,
        decoder_embed_dim=config.hidden_size,
        decoder_ffn_embed_dim=config.intermediate_size,
        decoder_attention_heads=config.num_attention_heads,
        decoder_key_value_heads=config.num_key_value_heads,
        decoder_layers=config.num_hidden_layers,
        decoder_connection="prenorm+rms",
        activation_fn=ACTIVATIONS[config.hidden_act],
        gated_ffn=True,
        biases=config.attention_bias,
        dropout=0.0,
        attention_dropout=config.attention_dropout,
        max_target_positions=config.max_position_embeddings,
        norm_eps=config.rms_norm_eps,
        rotary_theta=theta,
        rotary_scaling=scaling,
        share_decoder_input_output_embed=config.tie_word_embeddings,
    )


def _rotary(config: LlamaSettings, folder: Folder) -> tuple[float, dict[str, Any] | None]:
    """The base of rotary positions, and the scaling of their frequencies under our names."""
    name = "rope_scaling" if config.rope_parameters is None else "rope_parameters"
    given = {"rope_theta": config.rope_theta, **(getattr(config, name) or {})}
    theta, factor = given.pop("rope_theta"), given.pop("partial_rotary_factor", 1.0)
    kind = given.pop("rope_type", given.pop("type", "default"))
    source = str(folder.path / CONFIG)
    if factor != 1.0:
        raise SettingError.of_value(f"{name}.partial_rotary_factor", factor, "1", source=source)
    if kind not in _SCALING:
        raise SettingError.of_value(f"{name}.rope_type", kind, f"one of {', '.join(_SCALING)}", source=source)
    given.pop("type", None)
    own = _SCALING[kind]
    if kind == "default":
        return theta, None
    if missing := own.keys() - given.keys():
        raise SettingError(f"{name}.{min(missing)}", "is missing", source=source)
    return theta, {"kind": kind, **{ours: given[theirs] for theirs, ours in own.items()}}


def _renamed(weights: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """The weights under our names."""
    for name, tensor in weights.items():
        if match := _PART.fullmatch(name):
            number, part, kind = match.groups()
            yield f"decoder.layers.{number}.{_PARTS.get(part, part)}.{kind}", tensor
        elif not _FREQUENCIES.fullmatch(name):
            yield _NAMES.get(name, name), tensor
