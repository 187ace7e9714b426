"""Small models of every architecture of a library, with random weights and inputs that they take."""

from __future__ import annotations

import copy
import importlib
import inspect
import itertools
import random
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from measuring import diffusion_models

Row = dict[str, Any]
Inputs = dict[str, Any]
LAYERS, WIDTH, VOCABULARY, BATCH, LENGTH = 3, 64, 128, 2, 12
HEAD = 128  # features per head in most configurations
MOST_PARAMETERS = 60_000_000
HEADS = r"head_dim|kv_channels|d_kv|d_head|head_size|dim_head|d_rel|_rank$|rotary_dim|nope_dim|rope_dim"  # per head

# Reduced values of a configuration's integers: the first pattern that matches the name decides. None keeps the value.
SIZES: tuple[tuple[str, int | Callable[[int], int] | None], ...] = (
    (r"(^|_)type_vocab|token_id|_index$|_idx$|codebook|kernel|patch_size|window|stride|position_embedding_size", None),
    (r"vocab", VOCABULARY),
    (r"max_source_positions", 50),
    (r"max.*position|n_positions|n_ctx|max_seq_len", 512),
    (r"mamba_n_heads|mamba_num_heads", lambda n: 8),
    (r"(key_value|kv|key)_heads|query_groups|kv_groups", lambda n: 4 if n > 8 else 2),
    (r"heads$|n_head$", 4),
    (r"^(n_group|topk_group)$", 1),
    (r"top_?k$|per_tok|moe_k$", 2),
    (r"experts?(_num)?$", 4),
    (HEADS, 16),
    (r"dense_replace|dense_layers|num_kv_shared_layers|layer_start_index", 1),
    (r"period$|interval$|every_n_layers$|pattern$|layer_group_size|_step$", 2),
    (r"offset$", 1),
    (r"(^|_)(n_layers?|layers?|depth|num_blocks|blocks)$", LAYERS),
    (r"intermediate|ffn|feedforward|feed_forward|d_ff|d_inner|dim_ff|mlp_dim|linear_units", 2 * WIDTH),
    (r"size|dim|d_model|n_embd|width|channels|_units|features|num_centroids|queries|num_filters", WIDTH),
)


def _small(name: str, value: Any, layers: int, preset: str) -> Any:
    """A reduced value of a configuration's field; None keeps the default."""
    if name.endswith("layerdrop") or name == "apply_spec_augment":
        return type(value)(0)
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        if name in ("image_size", "input_size") and value > 64:
            return None
        if preset == "wide" and not re.search(r"vocab|layers?$|depth|blocks$|experts", name):
            return None
        change = next((change for pattern, change in SIZES if re.search(pattern, name)), None)
        if preset == "heads":  # heads keep their size, since other fields may depend on it
            if change == 16:
                return None
            change = {WIDTH: 2 * HEAD, 2 * WIDTH: 2 * HEAD, 4: 2}.get(change, change)
        return min(value, change) if isinstance(change, int) else change and change(value)
    if isinstance(value, (list, tuple)) and value and preset != "wide":
        first = value[0]
        if isinstance(first, str) and len(value) == layers and preset == "kinds":  # one layer of each kind
            return [*dict.fromkeys(value), *value][:LAYERS] if len(set(value)) > 1 else None
        if isinstance(first, int) and not isinstance(first, bool) and len(value) != layers:
            if re.search(r"depths|num_layers|blocks|heads", name):
                return [min(each, 2) for each in value]
            if re.search(r"hidden_sizes|embed_dims|channels|dims?$", name) and min(value) >= 16:
                return [max(16, 16 * each // first) for each in value]
    return None


def _reduced(kind: Any, preset: str, given: Any = None) -> Any:
    """A small configuration of this class, or of its object `given`. `preset` says which fields are reduced."""
    default = vars(kind() if given is None else given)
    changed = {**FIELDS.get(kind.model_type, {})}
    fields = inspect.signature(kind.__init__).parameters
    layers = default.get("num_hidden_layers") or default.get("num_layers") or 0
    for name, field in fields.items():
        value = default.get(name, field.default)
        if name in changed:
            continue
        if hasattr(value, "to_dict"):
            changed[name] = _reduced(type(value), preset, value).to_dict()
        elif (small := _small(name, value, layers, preset)) is not None and small != value:
            changed[name] = small
    for name, value in default.items():
        special = re.search(r"(pad|bos|eos|mask|start)_token_id$|pad_index", name)
        if special and isinstance(value, int) and value >= VOCABULARY:
            changed.setdefault(name, 1)
    return kind(**changed)


# Fields that the rules get wrong.
BACKBONE: Row = {"model_type": "resnet", "embedding_size": 16, "hidden_sizes": [16, 16, 32, 32], "depths": [1, 1, 1, 1]}
DETR: Row = {"use_timm_backbone": False, "backbone": None, "backbone_config": BACKBONE | {"out_features": ["stage4"]}}


def _rope(*sections: int) -> Row:
    return {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": sections}}


FIELDS: dict[str, Row] = {
    **dict.fromkeys(("glm4v_text", "glm_image_text", "glm_ocr_text", "paddleocr_vl_text"), _rope(2, 3, 3)),
    "glm4v_moe_text": _rope(1, 1, 2),
    "bamba": {"attn_layer_indices": [1]},
    "blenderbot": {"decoder_layers": 2},
    "conditional_detr": DETR,
    "dab-detr": DETR,
    "deepseek_v2": {"num_experts_per_tok": 2},
    "detr": DETR,
    "dory": {"n_input_layers": 1, "n_recurrent_layers": 1, "n_output_layers": 1},
    "esm": {"vocab_size": 33, "pad_token_id": 1, "mask_token_id": 32},
    "falcon_h1": {"mamba_d_ssm": 128},
    "gpt_neo": {"attention_types": [[["global", "local"], 2]], "num_layers": 4},
    "granitemoehybrid": {"layer_types": ["mamba", "attention", "mamba"]},
    "hunyuan_v1_dense": {"head_dim": 16},
    "hunyuan_v1_moe": {"head_dim": 16},
    "hunyuan_vl_text": {"head_dim": 16},
    "lfm2_moe": {"layer_types": ["conv", "full_attention", "conv"]},
    "longcat_flash": {"qk_head_dim": 32},
    "mamba2": {"num_heads": 8},
    "ministral": {"head_dim": 16},
    "nemotron": {"head_dim": 16, "num_key_value_heads": 2},
    "qwen4_exp_text": {
        "indexer_n_heads": 4, "indexer_kv_heads": 1, "indexer_head_dim": 16, "indexer_budget": 8,
        "indexer_compress_ratio": 2,
    },
    "reformer": {"is_decoder": True, "axial_pos_embds": False},
    "table-transformer": DETR,
    "xlstm": {"qk_dim_factor": 1.0},
    "xmod": {"default_language": "en_XX"},
}


def _find(config: Any, names: tuple[str, ...], default: int) -> Any:
    """The first of these fields in a configuration or in those that it contains."""
    if isinstance(config, Mapping):
        config = type("Config", (), dict(config))
    inner = [value for value in vars(config).values() if hasattr(value, "to_dict")]
    for each in (config, *inner):
        for name in names:
            value = vars(each).get(name)
            if isinstance(value, (int, list, tuple)) and not isinstance(value, bool) and value:
                return value[0] if isinstance(value, (list, tuple)) else value
    return default


def _candidates(name: str, config: Any) -> list[Callable[[], Tensor]]:
    """Tensors that could be the model's argument of this name, likely ones first."""
    find = partial(_find, config)
    vocabulary = find(("vocab_size", "text_vocab_size", "src_vocab_size"), VOCABULARY)
    channels, patch = find(("num_channels", "in_channels", "in_chans"), 3), find(("patch_size",), 4)
    temporal, frames = find(("temporal_patch_size",), 2), find(("num_frames", "frames_per_clip"), 4)
    size = find(("image_size", "img_size"), 64)
    mel = find(("num_mel_bins", "feature_size", "input_feat_per_channel", "input_feat_size"), 80)
    positions, context = 2 * find(("max_source_positions",), 50), find(("context_length", "max_length"), 64)

    def ids() -> Tensor:
        return torch.randint(min(3, vocabulary - 1), vocabulary, (BATCH, LENGTH))

    def noise(*shape: int) -> Callable[[], Tensor]:
        return lambda: torch.randn(shape)

    flat = noise(BATCH * 16, channels * temporal * patch**2), noise(BATCH * 16, channels * patch**2)
    return {
        "pixel_values": [
            *(noise(BATCH, channels, each, each) for each in (size, 224)),
            noise(BATCH, frames, channels, size, size),
            noise(BATCH, 1, channels, size, size),
            *flat,
        ],
        "pixel_values_videos": [noise(BATCH, frames, channels, size, size)],
        "hidden_states": [*flat, noise(BATCH, LENGTH, WIDTH)],
        "grid_thw": [lambda: torch.tensor([[1, 4, 4]] * BATCH)],
        "input_values": [noise(BATCH, 4000), noise(BATCH, 1, 4000), noise(BATCH, context, mel)],
        "input_features": [noise(BATCH, mel, positions), noise(BATCH, positions, mel)],
        "input_features_mask": [lambda: torch.ones(BATCH, positions, dtype=torch.long)],
        "past_values": [noise(BATCH, context), noise(BATCH, context, find(("num_input_channels",), 1))],
        "attention_mask": [lambda: torch.ones(BATCH, LENGTH, dtype=torch.long)],
        "bbox": [lambda: torch.zeros(BATCH, LENGTH, 4, dtype=torch.long)],
    }.get(name, [ids] if name.endswith("ids") else [noise(BATCH, LENGTH, WIDTH)])


def _examples(model: nn.Module, config: Any) -> Iterator[Inputs]:
    """Inputs to try."""
    fields = inspect.signature(model.forward).parameters
    plain = inspect.Parameter.POSITIONAL_OR_KEYWORD
    needed = [name for name, each in fields.items() if each.default is each.empty and each.kind is plain]
    main = getattr(model, "main_input_name", "input_ids")
    decoder = [name for name in ("decoder_input_ids",) if name in fields]
    first = [main] if main in fields else []
    more = [name for name in ("input_ids", "pixel_values", "input_features", "input_values", "bbox") if name in fields]
    for each in ([*first, *decoder], [*more, *decoder], first):
        names = list(dict.fromkeys([*each, *needed]))
        for makers in itertools.islice(itertools.product(*(_candidates(name, config) for name in names)), 12):
            yield {name: make() for name, make in zip(names, makers, strict=True)}


def tensors(value: Any) -> Iterator[Tensor]:
    """The floating-point tensors in an output."""
    if isinstance(value, Tensor):
        if value.is_floating_point():
            yield value
    elif isinstance(value, (Mapping, list, tuple)):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from tensors(each)


def seed() -> None:
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)


def loss_of(model: nn.Module, inputs: Any) -> Tensor:
    """The mean squared distance of all outputs from noise, with the same dropout each time."""
    seed()
    outputs = tensors(model(*inputs) if isinstance(inputs, tuple) else model(**inputs))
    noise = torch.Generator().manual_seed(2)
    losses = [
        (each.float() - torch.randn(each.shape, generator=noise)).square().mean()
        for each in outputs
        if each.requires_grad
    ]
    return torch.stack(losses).sum()


def _checked(model: nn.Module, inputs: Any) -> nn.Module:
    """The model with all parameters moved a little, so that zeros hide nothing, after a copy of it has trained."""
    seed()
    for parameter in model.parameters():
        if parameter.is_floating_point():
            parameter.data = torch.nan_to_num(parameter.data, 0, 0, 0).clamp(-100, 100)
            parameter.data += 0.02 * torch.randn_like(parameter.data)
    loss = loss_of(copy.deepcopy(model).train(), inputs)
    loss.backward()
    if not loss.isfinite():
        raise ValueError("outputs are not finite")
    return model


def build_transformers(name: str) -> tuple[nn.Module, Any]:
    """A small model of an architecture, with inputs that it takes."""
    import transformers

    auto = importlib.import_module("transformers.models.auto.modeling_auto")
    causal = name in auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    names = auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES if causal else auto.MODEL_MAPPING_NAMES
    kind = getattr(transformers, names[name] if isinstance(names[name], str) else names[name][0])
    problems = []
    for preset in ("kinds", "plain", "heads", "wide"):
        try:
            config = _reduced(transformers.CONFIG_MAPPING[name], preset)
            if isinstance(kind.config_class, type) and not isinstance(config, kind.config_class):
                config = config.get_text_config()
            with torch.device("meta"):
                size = sum(each.numel() for each in kind(config).parameters())
            if size > MOST_PARAMETERS:
                raise ValueError(f"{size // 10**6} million parameters")
            seed()
            model = kind(config)
        except Exception as error:
            problems.append(error)
            continue
        for inputs in _examples(model, config):
            try:
                return _checked(model, inputs), inputs
            except Exception as error:
                problems.append(error)
    raise problems[0]


# Files whose smallest models have one block per stage, so no shortcut.
TIMM = {"efficientnet": "efficientnet_lite0", "vovnet": "ese_vovnet39b"}


def build_timm(name: str) -> tuple[nn.Module, Any]:
    """The smallest model of a file of timm, with an image of the smallest size that it takes."""
    import timm

    def count(model: str) -> int:
        with torch.device("meta"):
            return sum(each.numel() for each in timm.create_model(model).parameters())

    marks = ("test", "atto", "femto", "pico", "nano", "tiny", "small", "18", "mini", "xs", "s")
    likely = sorted(timm.list_models(module=name), key=lambda each: (*(mark not in each for mark in marks), len(each)))
    smallest = TIMM.get(name) or min(likely[:6], key=count)
    problems = []
    given = ((size, {"img_size": size}) for size in (64, 56))
    for size, options in (*given, *((size, {}) for size in (64, 96, 128, 224, 256, 384))):
        try:
            seed()
            model = timm.create_model(smallest, num_classes=10, **options)
            return _checked(model, (torch.randn(BATCH, 3, size, size),)), (torch.randn(BATCH, 3, size, size),)
        except Exception as error:
            problems.append(error)
    raise problems[0]


def build_torchvision(name: str) -> tuple[nn.Module, Any]:
    """A model of torchvision: those with settings for it are made small."""
    from torchvision import models
    from torchvision.models import convnext, swin_transformer

    small: dict[str, Callable[[], nn.Module]] = {
        "vit": lambda: models.VisionTransformer(64, 16, 3, 4, 64, 128),
        "swin": lambda: models.SwinTransformer([4, 4], 32, [2, 2], [2, 4], [4, 4]),
        "swin_v2": lambda: models.SwinTransformer(
            [4, 4], 32, [2, 2], [2, 4], [4, 4], block=swin_transformer.SwinTransformerBlockV2,
            downsample_layer=swin_transformer.PatchMergingV2,
        ),
        "convnext": lambda: models.ConvNeXt([convnext.CNBlockConfig(32, 64, 2), convnext.CNBlockConfig(64, None, 2)]),
    }
    seed()
    inputs = (torch.randn(BATCH, 3, 64, 64),)
    return _checked(small[name]() if name in small else models.get_model(name), inputs), inputs


def build_torch(name: str) -> tuple[nn.Module, Any]:
    """A stack of torch.nn's Transformer layers."""
    kind, _, order = name.partition(" ")
    options: Row = {"dim_feedforward": 2 * WIDTH, "norm_first": order == "norm_first", "batch_first": True}
    seed()
    source, target = torch.randn(BATCH, LENGTH, WIDTH), torch.randn(BATCH, LENGTH - 2, WIDTH)
    if kind == "Transformer":
        return _checked(nn.Transformer(WIDTH, 4, LAYERS, LAYERS, **options), (source, target)), (source, target)
    layer = getattr(nn, f"{kind}Layer")(WIDTH, 4, **options)
    inputs = (source,) if kind == "TransformerEncoder" else (target, source)
    return _checked(getattr(nn, kind)(layer, LAYERS), inputs), inputs


def build_diffusers(name: str) -> tuple[nn.Module, Any]:
    """A diffusion model."""
    model, inputs = diffusion_models.build(name)
    return _checked(model, inputs), inputs


def names_of(library: str) -> list[str]:
    if library == "diffusers":
        return list(diffusion_models.SETTINGS)
    if library == "timm":
        import timm

        return sorted(timm.list_modules())
    if library == "torchvision":
        return ["resnet18", "resnet50", "resnext50_32x4d", "wide_resnet50_2", "vit", "swin", "swin_v2", "convnext"]
    if library == "torch.nn":
        kinds = ("TransformerEncoder", "TransformerDecoder", "Transformer")
        return [f"{kind} {order}" for kind in kinds for order in ("norm_last", "norm_first")]
    auto = importlib.import_module("transformers.models.auto.modeling_auto")
    return list(dict.fromkeys((*auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, *auto.MODEL_MAPPING_NAMES)))


BUILDERS = {
    "transformers": build_transformers,
    "timm": build_timm,
    "torchvision": build_torchvision,
    "torch.nn": build_torch,
    "diffusers": build_diffusers,
}
