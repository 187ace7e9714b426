"""Reads Hugging Face's folders of language models: GPT2LMHeadModel and LlamaForCausalLM."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from torch import Tensor

from rskip.checkpoint.checkpoint import Checkpoint
from rskip.checkpoint.hugging_face import common
from rskip.checkpoint.hugging_face.folder import CONFIG, Folder
from rskip.checkpoint.hugging_face.readers import check_known
from rskip.settings.errors import SettingError
from rskip.transformer import LanguageModelConfig

_EMBEDDING, _OUTPUT = "decoder.embed_tokens.weight", "decoder.output_projection.weight"
_GPT2_NAMES = {
    "wte.weight": _EMBEDDING,
    "wpe.weight": "decoder.embed_positions.weight",
    "ln_f.weight": "decoder.layer_norm.weight",
    "ln_f.bias": "decoder.layer_norm.bias",
    common.OUTPUT: _OUTPUT,
}
_GPT2_PART = re.compile(r"h\.(\d+)\.(\w+(?:\.c_\w+)?)\.(weight|bias)")
_GPT2_NORMS = {"ln_1": "self_attn_connection.norm", "ln_2": "ffn_connection.norm"}
_GPT2_MAPS = {"attn.c_proj": "self_attn.out_proj", "mlp.c_fc": "fc1", "mlp.c_proj": "fc2"}
_GPT2_JOINED = "attn.c_attn"  # queries, keys and values
_LLAMA_NAMES = {
    "model.embed_tokens.weight": _EMBEDDING,
    "model.norm.weight": "decoder.layer_norm.weight",
    common.OUTPUT: _OUTPUT,
}
_LLAMA_PART = re.compile(r"model\.layers\.(\d+)\.(.+)\.(weight|bias)")
_LLAMA_PARTS = {
    "input_layernorm": "self_attn_connection.norm",
    "post_attention_layernorm": "ffn_connection.norm",
    "self_attn.o_proj": "self_attn.out_proj",
    "mlp.gate_proj": "fc1",
    "mlp.down_proj": "fc2",
    "mlp.up_proj": "fc3",
}
# buffers in files of early versions
_BUFFERS = re.compile(r"h\.\d+\.attn\.(bias|masked_bias)|model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq")
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


def read_hugging_face_language_model(path: Path) -> Checkpoint:
    """The language model of a folder, without padding. No code in the folder is executed; tokenizers are not read."""
    folder = Folder(path)
    return _READERS[check_known(folder, _READERS, "a language model")](folder)


class GPT2Settings(msgspec.Struct, kw_only=True):
    """What config.json says of the model; the defaults are those of transformers."""

    vocab_size: int = 50257
    n_positions: int = 1024
    n_embd: int = 768
    n_layer: int = 12
    n_head: int = 12
    n_inner: int | None = None
    activation_function: common.Activation = "gelu_new"
    resid_pdrop: float = 0.1
    attn_pdrop: float = 0.1
    layer_norm_epsilon: float = 1e-5
    tie_word_embeddings: bool = True
    scale_attn_weights: bool = True
    scale_attn_by_inverse_layer_idx: bool = False
    add_cross_attention: bool = False


def _gpt2(folder: Folder) -> Checkpoint:
    config = common.read_settings(folder, GPT2Settings)
    usual = {"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False, "add_cross_attention": False}
    _refuse_settings(config, usual, folder)
    return _checkpoint(
        folder,
        dict(_renamed_gpt2(folder.tensors())),
        vocabulary=config.vocab_size,
        decoder_embed_dim=config.n_embd,
        decoder_ffn_embed_dim=config.n_inner or 4 * config.n_embd,
        decoder_attention_heads=config.n_head,
        decoder_layers=config.n_layer,
        decoder_learned_pos=True,
        decoder_connection="prenorm+ln",
        activation_fn=common.ACTIVATIONS[config.activation_function],
        dropout=config.resid_pdrop,
        attention_dropout=config.attn_pdrop,
        max_target_positions=config.n_positions,
        norm_eps=config.layer_norm_epsilon,
        share_decoder_input_output_embed=config.tie_word_embeddings,
    )


def _renamed_gpt2(weights: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """The weights under our names. GPT-2's linear maps have transposed weights."""
    for stored, tensor in weights.items():
        name = stored.removeprefix("transformer.")
        if _BUFFERS.fullmatch(name):
            continue
        match = _GPT2_PART.fullmatch(name)
        if match is None:
            yield _GPT2_NAMES.get(name, name), tensor
            continue
        number, part, kind = match.groups()
        layer = f"decoder.layers.{number}"
        if part in _GPT2_NORMS:
            yield f"{layer}.{_GPT2_NORMS[part]}.{kind}", tensor
            continue
        tensor = tensor.t() if kind == "weight" else tensor
        if part == _GPT2_JOINED:
            for letter, piece in zip("qkv", tensor.chunk(3), strict=False):
                yield f"{layer}.self_attn.{letter}_proj.{kind}", piece.contiguous()
        else:
            yield f"{layer}.{_GPT2_MAPS.get(part, part)}.{kind}", tensor.contiguous()


class LlamaSettings(msgspec.Struct, kw_only=True):
    """What config.json says of the model; the defaults are those of transformers."""

    vocab_size: int = 32000
    hidden_size: int = 4096
    intermediate_size: int = 11008
    num_hidden_layers: int = 32
    num_attention_heads: int = 32
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    hidden_act: common.Activation = "silu"
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


def _llama(folder: Folder) -> Checkpoint:
    config = common.read_settings(folder, LlamaSettings)
    width = config.hidden_size // max(config.num_attention_heads, 1)
    usual = {"head_dim": (None, width), "mlp_bias": config.attention_bias, "sliding_window": None}
    _refuse_settings(config, {**usual, "partial_rotary_factor": 1.0}, folder)
    theta, scaling = _rotary(config, folder)
    return _checkpoint(
        folder,
        dict(_renamed_llama(folder.tensors())),
        vocabulary=config.vocab_size,
        decoder_embed_dim=config.hidden_size,
        decoder_ffn_embed_dim=config.intermediate_size,
        decoder_attention_heads=config.num_attention_heads,
        decoder_key_value_heads=config.num_key_value_heads,
        decoder_layers=config.num_hidden_layers,
        decoder_connection="prenorm+rms",
        activation_fn=common.ACTIVATIONS[config.hidden_act],
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
    if factor != 1.0:
        raise folder.wrong(f"{name}.partial_rotary_factor", factor, "1")
    if kind not in _SCALING:
        raise folder.wrong(f"{name}.rope_type", kind, f"one of {', '.join(_SCALING)}")
    if kind == "default":
        return theta, None
    if missing := _SCALING[kind].keys() - given.keys():
        raise folder.error("is missing", name=f"{name}.{min(missing)}", file=CONFIG)
    return theta, {"kind": kind, **{ours: given[theirs] for theirs, ours in _SCALING[kind].items()}}


def _renamed_llama(weights: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    for name, tensor in weights.items():
        if match := _LLAMA_PART.fullmatch(name):
            number, part, kind = match.groups()
            yield f"decoder.layers.{number}.{_LLAMA_PARTS.get(part, part)}.{kind}", tensor
        elif not _BUFFERS.fullmatch(name):
            yield _LLAMA_NAMES.get(name, name), tensor


_READERS = {"gpt2": _gpt2, "llama": _llama}  # by `model_type`


def _refuse_settings(config: msgspec.Struct, usual: Mapping[str, Any], folder: Folder) -> None:
    """Refuses settings whose value is not the one, or one of the tuple, that rskip computes."""
    for name, values in usual.items():
        known = values if isinstance(values, tuple) else (values,)
        if (value := getattr(config, name)) not in known:
            expected = " or ".join("null" if each is None else str(each).lower() for each in known)
            raise folder.wrong(name, value, expected)


def _checkpoint(folder: Folder, weights: dict[str, Tensor], *, vocabulary: int, **settings: Any) -> Checkpoint:
    """The checkpoint of weights under our names. `settings` are fields of `LanguageModelConfig`."""
    try:
        config = LanguageModelConfig.from_dict({"no_scale_embedding": True, **settings})
    except SettingError as error:
        raise error.within(source=str(folder.path / CONFIG)) from None
    if config.output_is_embedding and _EMBEDDING in weights:
        weights[_OUTPUT] = weights[_EMBEDDING]
    about = {"task": "language_modeling", "arch": folder.model_type, "source_lang": None, "target_lang": None}
    return Checkpoint(model=weights, config={**about, "model": {"vocabulary": vocabulary, **config.to_dict()}})
