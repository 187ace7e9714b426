"""Small diffusion models of diffusers, by class, with random weights and inputs that they take."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import torch
from torch import nn

Row = dict[str, Any]
HEADS: Row = {"num_attention_heads": 2, "attention_head_dim": 8}  # 16 features
IMAGE: Row = {"in_channels": 4, "out_channels": 4, "sample_size": 8, "patch_size": 2}

SETTINGS: dict[str, Row] = {
    "AuraFlowTransformer2DModel": {
        **HEADS, **IMAGE, "num_mmdit_layers": 2, "num_single_dit_layers": 3, "joint_attention_dim": 16,
        "caption_projection_dim": 16, "pos_embed_max_size": 64,
    },
    "ChromaTransformer2DModel": {
        **HEADS, "in_channels": 4, "num_layers": 2, "num_single_layers": 3, "joint_attention_dim": 16,
        "axes_dims_rope": (2, 2, 4), "approximator_num_channels": 8, "approximator_hidden_dim": 16,
        "approximator_layers": 1,
    },
    "CogVideoXTransformer3DModel": {
        **HEADS, "in_channels": 4, "out_channels": 4, "num_layers": 3, "time_embed_dim": 8, "text_embed_dim": 16,
        "sample_width": 8, "sample_height": 8, "sample_frames": 5, "max_text_seq_length": 5,
    },
    "CogView4Transformer2DModel": {
        "num_attention_heads": 2, "attention_head_dim": 8, "in_channels": 4, "out_channels": 4, "num_layers": 3,
        "text_embed_dim": 16, "time_embed_dim": 8, "condition_dim": 4, "pos_embed_max_size": 8, "sample_size": 8,
        "rope_axes_dim": (4, 4),
    },
    "CosmosTransformer3DModel": {
        "num_attention_heads": 2, "attention_head_dim": 16, "in_channels": 4, "out_channels": 4, "num_layers": 3,
        "mlp_ratio": 2, "text_embed_dim": 16, "adaln_lora_dim": 4, "max_size": (4, 32, 32),
    },
    "DiTTransformer2DModel": {
        **HEADS, "in_channels": 4, "sample_size": 8, "num_layers": 3, "norm_type": "ada_norm_zero",
        "num_embeds_ada_norm": 10,
    },
    "Flux2Transformer2DModel": {
        "num_attention_heads": 2, "attention_head_dim": 16, "in_channels": 4, "num_layers": 2, "num_single_layers": 3,
        "joint_attention_dim": 16, "timestep_guidance_channels": 16, "axes_dims_rope": (4, 4, 4, 4),
    },
    "FluxTransformer2DModel": {
        **HEADS, "in_channels": 4, "num_layers": 2, "num_single_layers": 3, "joint_attention_dim": 16,
        "pooled_projection_dim": 12, "axes_dims_rope": (2, 2, 4),
    },
    "HunyuanVideoTransformer3DModel": {
        "num_attention_heads": 2, "attention_head_dim": 10, "in_channels": 4, "out_channels": 4, "num_layers": 2,
        "num_single_layers": 3, "num_refiner_layers": 2, "patch_size": 1, "text_embed_dim": 16,
        "pooled_projection_dim": 12, "rope_axes_dim": (2, 4, 4),
    },
    "LTXVideoTransformer3DModel": {
        **HEADS, "in_channels": 4, "out_channels": 4, "cross_attention_dim": 16, "num_layers": 3,
        "caption_channels": 16,
    },
    "Lumina2Transformer2DModel": {
        "in_channels": 4, "sample_size": 8, "hidden_size": 24, "num_layers": 3, "num_refiner_layers": 2,
        "num_attention_heads": 3, "num_kv_heads": 1, "multiple_of": 2, "cap_feat_dim": 16,
        "axes_dim_rope": (4, 2, 2), "axes_lens": (128, 128, 128),
    },
    "MochiTransformer3DModel": {
        **HEADS, "in_channels": 4, "num_layers": 3, "pooled_projection_dim": 16, "text_embed_dim": 16,
        "time_embed_dim": 4, "max_sequence_length": 5,
    },
    "PixArtTransformer2DModel": {
        **HEADS, **IMAGE, "out_channels": 8, "num_layers": 3, "cross_attention_dim": 16, "caption_channels": 16,
        "use_additional_conditions": False,
    },
    "QwenImageTransformer2DModel": {
        "num_attention_heads": 2, "attention_head_dim": 16, "in_channels": 16, "out_channels": 4, "num_layers": 3,
        "joint_attention_dim": 16, "axes_dims_rope": (8, 4, 4),
    },
    "SD3Transformer2DModel": {
        **HEADS, **IMAGE, "num_layers": 3, "joint_attention_dim": 16, "caption_projection_dim": 16,
        "pooled_projection_dim": 12,
    },
    "SanaTransformer2DModel": {
        **HEADS, **IMAGE, "patch_size": 1, "num_layers": 3, "num_cross_attention_heads": 2,
        "cross_attention_head_dim": 8, "cross_attention_dim": 16, "caption_channels": 16,
    },
    "StableAudioDiTModel": {
        **HEADS, "sample_size": 4, "in_channels": 4, "out_channels": 4, "num_layers": 3,
        "num_key_value_attention_heads": 2, "cross_attention_dim": 16, "time_proj_dim": 8,
        "global_states_input_dim": 12, "cross_attention_input_dim": 16,
    },
    "UNet2DConditionModel": {
        "sample_size": 8, "block_out_channels": (8, 16), "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
        "up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D"), "cross_attention_dim": 16, "attention_head_dim": 2,
        "norm_num_groups": 4, "transformer_layers_per_block": 2,
    },
    "WanTransformer3DModel": {
        "num_attention_heads": 2, "attention_head_dim": 12, "in_channels": 4, "out_channels": 4, "num_layers": 3,
        "text_dim": 16, "freq_dim": 8, "ffn_dim": 32, "rope_max_seq_len": 32,
    },
}  # fmt: skip

# What differs from the inputs below: shapes, or values.
INPUTS: dict[str, Row] = {
    "ChromaTransformer2DModel": {"hidden_states": (2, 6, 4), "img_ids": (6, 3), "txt_ids": (5, 3)},
    "CogVideoXTransformer3DModel": {"hidden_states": (2, 2, 4, 8, 8)},
    "CogView4Transformer2DModel": {"original_size": (2, 2), "target_size": (2, 2), "crop_coords": (2, 2)},
    "CosmosTransformer3DModel": {"hidden_states": (2, 4, 2, 8, 8), "timestep": (2,), "padding_mask": (1, 1, 8, 8)},
    "Flux2Transformer2DModel": {"hidden_states": (2, 6, 4), "img_ids": (6, 4), "txt_ids": (5, 4), "guidance": (2,)},
    "FluxTransformer2DModel": {"hidden_states": (2, 6, 4), "img_ids": (6, 3), "txt_ids": (5, 3)},
    "HunyuanVideoTransformer3DModel": {"hidden_states": (2, 4, 1, 4, 4), "guidance": (2,)},
    "LTXVideoTransformer3DModel": {"hidden_states": (2, 8, 4), "num_frames": 2, "height": 2, "width": 2},
    "MochiTransformer3DModel": {"hidden_states": (2, 4, 2, 8, 8)},
    "QwenImageTransformer2DModel": {"hidden_states": (2, 16, 16), "img_shapes": [[(1, 4, 4)]] * 2},
    "StableAudioDiTModel": {
        "hidden_states": (2, 4, 4), "global_hidden_states": (2, 1, 12), "encoder_attention_mask": None,
        "rotary_embedding": (torch.ones(5, 4), torch.zeros(5, 4)),
    },
    "WanTransformer3DModel": {"hidden_states": (2, 4, 2, 8, 8)},
}  # fmt: skip


def build(name: str) -> tuple[nn.Module, Row]:
    """A model and its inputs."""
    torch.manual_seed(1)
    model = getattr(importlib.import_module("diffusers"), name)(**SETTINGS[name])
    inputs: Row = {
        "hidden_states": (2, 4, 8, 8),
        "sample": (2, 4, 8, 8),
        "encoder_hidden_states": (2, 5, 16),
        "pooled_projections": (2, 12),
        "timestep": torch.tensor([3.0, 5.0]),
        "class_labels": torch.tensor([1, 2]),
        "encoder_attention_mask": torch.ones(2, 5, dtype=torch.bool),
        "encoder_hidden_states_mask": torch.ones(2, 5, dtype=torch.long),
        "added_cond_kwargs": {"resolution": None, "aspect_ratio": None},
        **INPUTS.get(name, {}),
    }
    known = inspect.signature(model.forward).parameters
    return model, {key: _drawn(each) for key, each in inputs.items() if key in known}


def _drawn(value: Any) -> Any:
    """Random numbers if the value is a shape."""
    is_shape = isinstance(value, tuple) and all(isinstance(each, int) for each in value)
    return torch.rand(value) if is_shape else value
