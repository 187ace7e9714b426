"""Reads Hugging Face's folders of language models: GPT2LMHeadModel and LlamaForCausalLM."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from rskip.checkpoint.checkpoint import Checkpoint
from rskip.checkpoint.hugging_face.families import ACTIVATIONS, OUTPUT, Activation
from rskip.checkpoint.hugging_face.folder import CONFIG, Folder
from rskip.settings.check import convert
from rskip.settings.errors import errors_about
from rskip.transformer import LanguageModelConfig

_EMBEDDING, _OUTPUT = "decoder.embed_tokens.weight", "decoder.output_projection.weight"
_NAMES = {
    "wte.weight": _EMBEDDING,
    "wpe.weight": "decoder.embed_positions.weight",
    "ln_f.weight": "decoder.layer_norm.weight",
    "ln_f.bias": "decoder.layer_norm.bias",
    "model.embed_tokens.weight": _EMBEDDING,
    "model.norm.weight": "decoder.layer_norm.weight",
    OUTPUT: _OUTPUT,
}
_PART = re.compile(r"(?:h|model\.layers)\.(\d+)\.(.+)\.(weight|bias)")
_PARTS = {
    "ln_1": "self_attn_connection.norm",
    "ln_2": "ffn_connection.norm",
    "attn.c_proj": "self_attn.out_proj",
    "mlp.c_fc": "fc1",
    "mlp.c_proj": "fc2",
    "input_layernorm": "self_attn_connection.norm",
    "post_attention_layernorm": "ffn_connection.norm",
    "self_attn.o_proj": "self_attn.out_proj",
    "mlp.gate_proj": "fc1",
    "mlp.down_proj": "fc2",
    "mlp.up_proj": "fc3",
}
_JOINED = "attn.c_attn"  # GPT-2's queries, keys and values
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


# config.json's names; ours, and transformers' default. Without our name, rskip computes only the values given here.
_GPT2 = {
    "vocab_size": ("vocabulary", 50257),
    "n_positions": ("max_target_positions", 1024),
    "n_embd": ("decoder_embed_dim", 768),
    "n_layer": ("decoder_layers", 12),
    "n_head": ("decoder_attention_heads", 12),
    "n_inner": ("decoder_ffn_embed_dim", None),
    "activation_function": ("activation_fn", "gelu_new"),
    "resid_pdrop": ("dropout", 0.1),
    "attn_pdrop": ("attention_dropout", 0.1),
    "layer_norm_epsilon": ("norm_eps", 1e-5),
    "tie_word_embeddings": ("share_decoder_input_output_embed", True),
    "scale_attn_weights": ("", True),
    "scale_attn_by_inverse_layer_idx": ("", False),
    "add_cross_attention": ("", False),
}
_LLAMA = {
    "vocab_size": ("vocabulary", 32000),
    "hidden_size": ("decoder_embed_dim", 4096),
    "intermediate_size": ("decoder_ffn_embed_dim", 11008),
    "num_hidden_layers": ("decoder_layers", 32),
    "num_attention_heads": ("decoder_attention_heads", 32),
    "num_key_value_heads": ("decoder_key_value_heads", None),
    "hidden_act": ("activation_fn", "silu"),
    "max_position_embeddings": ("max_target_positions", 2048),
    "rms_norm_eps": ("norm_eps", 1e-6),
    "attention_dropout": ("attention_dropout", 0.0),
    "attention_bias": ("biases", False),
    "tie_word_embeddings": ("share_decoder_input_output_embed", False),
    "rope_theta": ("rotary_theta", 10000.0),
    "partial_rotary_factor": ("", 1.0),
    "sliding_window": ("", None),
}


def read_hugging_face_language_model(path: Path) -> Checkpoint:
    """The language model of a folder, without padding. No code in the folder is executed; tokenizers are not read."""
    folder = Folder(path)
    if folder.check_kind(("gpt2", "llama"), "a language model") == "gpt2":
        settings = _settings(folder, _GPT2)
        settings["decoder_ffn_embed_dim"] = settings["decoder_ffn_embed_dim"] or 4 * settings["decoder_embed_dim"]
        return _checkpoint(folder, decoder_learned_pos=True, decoder_connection="prenorm+ln", **settings)
    settings = _settings(folder, _LLAMA)
    width = settings["decoder_embed_dim"] // max(settings["decoder_attention_heads"], 1)
    _settings(folder, {"head_dim": ("", None, width), "mlp_bias": ("", settings["biases"])})
    settings["rotary_theta"], scaling = _rotary(folder, settings["rotary_theta"])
    return _checkpoint(
        folder, decoder_connection="prenorm+rms", gated_ffn=True, dropout=0.0, rotary_scaling=scaling, **settings
    )


def _settings(folder: Folder, table: Mapping[str, tuple[Any, ...]]) -> dict[str, Any]:
    """What config.json says of the model, under our names, by a table such as _GPT2."""
    settings: dict[str, Any] = {}
    for name, (ours, *usual) in table.items():
        kind: Any = Activation if ours == "activation_fn" else int if usual[0] is None else type(usual[0])
        value = usual[0]
        if (given := folder.config.get(name)) is not None:
            value = convert(given, kind, name=name, source=str(folder.path / CONFIG))
        if not ours and value not in usual:
            expected = " or ".join("null" if each is None else str(each).lower() for each in usual)
            raise folder.wrong(name, value, expected)
        settings[ours] = ACTIVATIONS[value] if ours == "activation_fn" else value
    settings.pop("", None)
    return settings


def _rotary(folder: Folder, theta: float) -> tuple[float, dict[str, Any] | None]:
    """The base of rotary positions, and the scaling of their frequencies under our names."""
    name = "rope_scaling" if folder.config.get("rope_parameters") is None else "rope_parameters"
    own = convert(folder.config.get(name) or {}, dict[str, Any], name=name, source=str(folder.path / CONFIG))
    given = {"rope_theta": theta, **own}
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


def _renamed(weights: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """The weights under our names. GPT-2's linear maps have transposed weights."""
    for stored, tensor in weights.items():
        name = stored.removeprefix("transformer.")
        if _BUFFERS.fullmatch(name):
            continue
        if (match := _PART.fullmatch(name)) is None:
            yield _NAMES.get(name, name), tensor
            continue
        number, part, kind = match.groups()
        layer = f"decoder.layers.{number}"
        if ".c_" in part and kind == "weight":
            tensor = tensor.t().contiguous()
        if part == _JOINED:
            for letter, piece in zip("qkv", tensor.chunk(3), strict=False):
                yield f"{layer}.self_attn.{letter}_proj.{kind}", piece.contiguous()
        else:
            yield f"{layer}.{_PARTS.get(part, part)}.{kind}", tensor


def _checkpoint(folder: Folder, *, vocabulary: int, **settings: Any) -> Checkpoint:
    """The checkpoint of a folder's weights. `settings` are fields of `LanguageModelConfig`."""
    with errors_about(folder.path / CONFIG):
        config = LanguageModelConfig.from_dict({"no_scale_embedding": True, **settings})
    weights = dict(_renamed(folder.tensors))
    if config.output_is_embedding and _EMBEDDING in weights:
        weights[_OUTPUT] = weights[_EMBEDDING]
    about = {"task": "language_modeling", "arch": folder.config["model_type"], "source_lang": None, "target_lang": None}
    return Checkpoint(model=weights, config={**about, "model": {"vocabulary": vocabulary, **config.to_dict()}})
