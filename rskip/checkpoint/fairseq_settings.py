"""Converts the settings of fairseq's Transformers from groups to flat names.

fairseq's flags use `encoder_layers`, and its hydra files use `encoder: {layers: ...}`. Both name the same setting.
"""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from rskip.transformer.config import TransformerConfig

_STACK = {
    "embed_dim": 512,
    "ffn_embed_dim": 2048,
    "layers": 6,
    "attention_heads": 8,
    "normalize_before": False,
    "learned_pos": False,
    "layerdrop": 0,
    "layers_to_keep": None,
    "xformers_att_config": None,
}
# fairseq's groups, and the defaults for settings that a given group omits.
GROUPS: dict[str, dict[str, Any]] = {
    "encoder": _STACK,
    "decoder": {**_STACK, "input_dim": None, "output_dim": None},
    "quant_noise": {"pq": 0, "pq_block_size": 8, "scalar": 0},
}

# Settings that fairseq's Transformers support and ours don't.
UNSUPPORTED = (
    "adaptive_input",
    "adaptive_softmax_cutoff",
    "base_layers",
    "char_inputs",
    "character_embeddings",
    "cross_self_attention",
    "decoder_layers_to_keep",
    "decoder_xformers_att_config",
    "encoder_layers_to_keep",
    "encoder_xformers_att_config",
    "layer_wise_attention",
    "no_cross_attention",
    "quant_noise_pq",
    "quant_noise_scalar",
    "scale_attn",
    "scale_fc",
    "scale_heads",
    "scale_resids",
)
# Settings that don't change a translation, or change it only together with an unsupported setting.
_WITHOUT_EFFECT = (
    "adaptive_input_cutoff",
    "adaptive_input_factor",
    "adaptive_softmax_dropout",
    "adaptive_softmax_factor",
    "base_shuffle",
    "base_sublayers",
    "char_embedder_highway_layers",
    "character_embedding_dim",
    "character_filters",
    "compile_layers",
    "decoder_langtok",  # of multilingual tasks: `fairseq_languages` reads them
    "encoder_langtok",
    "export",
    "min_params_to_wrap",
    "no_decoder_final_norm",
    "offload_activations",
    "probe_every",
    "relu_dropout",
    "share_decoder_embeddings",  # of multilingual_transformer: which names share tensors, as the file shows
    "share_decoders",
    "share_encoder_embeddings",
    "share_encoders",
    "tie_adaptive_proj",
    "tie_adaptive_weights",
    "tokens_per_sample",
)
KNOWN = frozenset(
    {
        *(field.name for field in fields(TransformerConfig)),
        *(f"{group}_{name}" for group, names in GROUPS.items() for name in names),
        *UNSUPPORTED,
        *_WITHOUT_EFFECT,
        "connection",
    }
)

# Names that belong only to a Transformer's settings. fairseq keeps all flags of a run in one list.
TRANSFORMER_SETTING = re.compile(
    r"(encoder|decoder|share|quant_noise|adaptive|tie_adaptive)_.*|max_(source|target)_positions"
    r"|(attention_|activation_|relu_)?dropout|activation_fn|layernorm_embedding|connection|value_residual"
    r"|no_(token_positional_embeddings|scale_embedding|decoder_final_norm)|checkpoint_activations|offload_activations|"
    + "|".join(UNSUPPORTED)
)


def flat_settings(model: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a model under flat names. As in fairseq, a group overrides the flat settings of the same names.

    For a group that fairseq's Transformers don't have, the result lists the names of its settings that are set.
    """
    flat: dict[str, Any] = {}
    groups: dict[str, Mapping[str, Any]] = {}
    for name, value in model.items():
        group = vars(value) if isinstance(value, Namespace) else value
        if not isinstance(group, Mapping):
            flat[name] = value
        elif name in GROUPS:
            groups[name] = group
        else:
            flat[name] = [str(each) for each, setting in group.items() if _is_set(setting)]
    for name, group in groups.items():
        settings = {f"{name}_{each}": setting for each, setting in {**GROUPS[name], **group}.items()}
        # settings that are None are dropped, since fairseq would use a flat None as a value
        flat = {each: setting for each, setting in {**flat, **settings}.items() if setting is not None}
    return flat


def _is_set(setting: Any) -> bool:
    return not isinstance(setting, (type(None), bool, int, float, str, list, tuple, dict)) or bool(setting)
