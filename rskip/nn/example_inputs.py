"""Inputs with which `adapt` runs a model once to see what it computes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
_TOKENS = 7


def example_inputs(model: nn.Module, example: Any = None) -> Iterator[Arguments]:
    """Arguments that the model may take, the likeliest first.

    :param example: the user's own: a tensor, a tuple of arguments, or a mapping of named arguments.
    """
    weight = next((each for each in model.parameters() if each.is_floating_point()), torch.empty(0, device="cpu"))

    def placed(each: Any) -> Any:
        return each.to("meta") if weight.is_meta and isinstance(each, Tensor) else each

    if example is not None:
        if isinstance(example, Mapping):
            yield (), {name: placed(each) for name, each in example.items()}
        else:
            yield tuple(map(placed, example if isinstance(example, tuple) else (example,))), {}
        return

    def like(each: Tensor) -> Tensor:
        return each.to(weight.device, weight.dtype if each.is_floating_point() else None)

    config = getattr(model, "config", None)
    named = config is not None and hasattr(model, "main_input_name")
    for args, kwargs in _of_transformers(model, config) if named else _of_others(model):
        yield tuple(map(like, args)), {name: like(each) for name, each in kwargs.items()}


def _of_others(model: nn.Module) -> Iterator[Arguments]:
    sizes = getattr(model, "pretrained_cfg", None) or getattr(model, "default_cfg", None) or {}
    size = _image_size(model)
    if isinstance(sizes, Mapping) and sizes.get("input_size"):
        channels, *shape = sizes["input_size"]
        if not size and not sizes.get("fixed_input_size"):
            yield (_floats(channels, 64, 64),), {}
        yield (_floats(channels, *([size, size] if size else shape)),), {}
    count = max(1, _required(model))
    for first in (
        *([_floats(3, size, size)] if size else []),
        _tokens(_TOKENS),
        *(_floats(_TOKENS, width) for width in _widths(model)),
        *(_floats(channels, size, size) for size in (64, 224, 32, 28) for channels in _channels(model)),
    ):
        yield tuple(first.clone() if first.dtype == torch.int64 else first * (1 + each) for each in range(count)), {}


def _tokens(count: int, below: int = 61) -> Tensor:
    values = torch.arange(2 * count, device="cpu") * 7 % max(1, min(below, 61) - 5) + min(4, max(below - 1, 0))
    return values.view(2, count)


def _floats(*shape: int) -> Tensor:
    return torch.randn(2, *shape, generator=torch.Generator().manual_seed(0), device="cpu")


def _of_transformers(model: Any, config: Any) -> Iterator[Arguments]:
    """By the name of the model's first input."""
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    vocabulary = int(getattr(text, "vocab_size", 61) or 61)
    tokens = _tokens(_TOKENS, below=vocabulary)
    parameters = inspect.signature(model.forward).parameters
    more: dict[str, Any] = {}
    if getattr(config, "is_encoder_decoder", False) and "decoder_input_ids" in parameters:
        decoder = getattr(config, "decoder", None) or config
        below = int(getattr(decoder, "vocab_size", vocabulary) or vocabulary)
        more["decoder_input_ids"] = _tokens(_TOKENS - 2, below=below)
    if getattr(config, "add_cross_attention", False) and "encoder_hidden_states" in parameters:
        width = getattr(config, "cross_attention_hidden_size", None) or config.hidden_size
        more["encoder_hidden_states"] = _floats(5, int(width))
    name = model.main_input_name
    vision = getattr(config, "vision_config", None) or config
    if name == "pixel_values" or (name == "input_ids" not in parameters and "pixel_values" in parameters):
        size = _pair(getattr(vision, "image_size", None) or 224)
        channels = int(getattr(vision, "num_channels", 3) or 3)
        images = _floats(channels, *size)
        yield (), {"pixel_values": images, **more}
        frames = int(getattr(config, "num_frames", 0) or 0)
        if frames:
            yield (), {"pixel_values": _floats(frames, channels, *size), **more}
    elif name == "input_features":
        mels = int(getattr(config, "num_mel_bins", None) or getattr(config, "feature_size", None) or 80)
        length = 2 * int(getattr(config, "max_source_positions", 0) or 50)
        yield (), {name: _floats(mels, length), **more}
        yield (), {name: _floats(64, mels), **more}
    elif name == "input_values":
        yield (), {name: _floats(8000), **more}  # longer than the spans that models mask in training
        bins, length = getattr(config, "num_mel_bins", 128), getattr(config, "max_length", 1024)
        yield (), {name: _floats(int(length), int(bins)), **more}
    elif name != "input_ids":
        yield (), {name: _floats(_TOKENS, int(getattr(config, "hidden_size", 8))), **more}
    texts = {name if name == "input_ids" or name not in parameters else "input_ids": tokens}
    if "pixel_values" in parameters and name == "input_ids" and "vision_config" in vars(config):
        size = _pair(getattr(vision, "image_size", None) or 224)
        pixels = _floats(int(getattr(vision, "num_channels", 3) or 3), *size)
        yield (), {**texts, "pixel_values": pixels, **more}
    yield (), {**texts, **more}
    if "inputs_embeds" in parameters:  # without values, as on meta, a check of tokens fails in some models
        width = int(getattr(text, "hidden_size", 0) or getattr(text, "d_model", 8))
        if more.pop("decoder_input_ids", None) is not None:
            more["decoder_inputs_embeds"] = _floats(_TOKENS - 2, width)
        yield (), {"inputs_embeds": _floats(_TOKENS, width), **more}


def _pair(size: Any) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else tuple(int(each) for each in tuple(size)[-2:])  # type: ignore[return-value]


def _image_size(model: nn.Module) -> int | None:
    """The size of images for which patches were laid out, if the model tells it."""
    for module in (model, getattr(model, "patch_embed", None)):
        size = getattr(module, "image_size", None) or getattr(module, "img_size", None)
        if size and isinstance(size, (int, tuple, list)):
            return _pair(size)[0]
    return None


def _widths(model: nn.Module) -> list[int]:
    """The likely numbers of features of a model that takes features: those of its first normalisations and maps."""
    found = []
    for module in model.modules():
        for name in ("d_model", "embed_dim", "normalized_shape", "in_features"):
            value = getattr(module, name, None)
            value = value[-1] if isinstance(value, (tuple, list)) and value else value
            if isinstance(value, int) and value not in found:
                found.append(value)
        if len(found) > 2:
            break
    found += [p.shape[-1] for p in list(model.parameters())[:2] if p.dim() and p.shape[-1] not in found]
    return found


def _channels(model: nn.Module) -> list[int]:
    first = next((each for each in model.modules() if isinstance(each, nn.Conv2d)), None)
    return [first.in_channels] if first is not None else []


def _required(model: nn.Module) -> int:
    """The number of tensors that forward needs: its parameters without a default."""
    forward: Callable[..., Any] = type(model).forward
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    given = list(inspect.signature(forward).parameters.values())[1:]
    return sum(each.kind in plain and each.default is inspect.Parameter.empty for each in given)
