"""The names of the settings of fairseq's Transformers: flat or in groups.

Its flags have `encoder_layers`, its hydra files `encoder: {layers: ...}`: both are one setting.
"""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from rskip.transformer import TransformerConfig

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
# fairseq's groups, and the defaults that it takes for what a group that is given leaves out.
GROUPS: dict[str, dict[str, Any]] = {
    "encoder": _STACK,
    "decoder": {**_STACK, "input_dim": None, "output_dim": None},
    "quant_noise": {"pq": 0, "pq_block_size": 8, "scalar": 0},
}

# What fairseq's transformers can be and ours can't.
UNSUPPORTED = (
    "adaptive_input",
    "adaptive_softmax_cutoff",
    "base_layers",
    "char_inputs",
    "cross_self_attention",
    "decoder_layers_to_keep",
    "decoder_xformers_att_config",
    "encoder_layers_to_keep",
    "encoder_xformers_att_config",
    "layer_wise_attention",
    "no_cross_attention",
    "quant_noise_pq",
    "quant_noise_scalar",
)
# What changes no translation, or only together with what is unsupported.
_WITHOUT_EFFECT = (
    "adaptive_softmax_dropout",
    "adaptive_softmax_factor",
    "base_shuffle",
    "base_sublayers",
    "compile_layers",
    "export",
    "min_params_to_wrap",
    "no_decoder_final_norm",
    "offload_activations",
    "probe_every",
    "relu_dropout",
    "tie_adaptive_proj",
    "tie_adaptive_weights",
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

# Names that only a Transformer's settings have. fairseq's flags of a run are one list, whatever they are for.
TRANSFORMER_SETTING = re.compile(
    r"(encoder|decoder|share|quant_noise|adaptive|tie_adaptive)_.*|max_(source|target)_positions"
    r"|(attention_|activation_|relu_)?dropout|activation_fn|layernorm_embedding|connection|value_residual"
    r"|no_(token_positional_embeddings|scale_embedding|decoder_final_norm)|checkpoint_activations|offload_activations|"
    + "|".join(UNSUPPORTED)
)


def flat_settings(model: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a model under flat names. As in fairseq, a group overrides all flat settings of its names.

    Of a group that fairseq's Transformers don't have, the names of what is set are kept.
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
        # what is None is left out: in a flat setting fairseq takes it for a value
        flat = {each: setting for each, setting in {**flat, **settings}.items() if setting is not None}
    return flat


def _is_set(setting: Any) -> bool:
    return not isinstance(setting, (type(None), bool, int, float, str, list, tuple, dict)) or bool(setting)
