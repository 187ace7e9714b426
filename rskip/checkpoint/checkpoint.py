"""Represents the content of a checkpoint file, and finds parameters that share a tensor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import torch
from torch import Tensor

from rskip.settings.check import convert
from rskip.settings.errors import shown

# An uninitialised buffer of fairseq's sinusoidal positions, whose value is meaningless.
_MEANINGLESS = "._float_tensor"
_DTYPES = (
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
)
# fairseq writes copies under these names if it trains on a GPU, or in bfloat16 or float16
_EMBEDDINGS = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "decoder.output_projection.weight")

# keys of `Checkpoint.config` of multilingual models, see `fairseq_languages`
LANGUAGES, PAIRS = "languages", "pairs"
# the values that fairseq's models have
_BEYOND_FAIRSEQ = {"output_bias": False, "start": "end"}


@dataclass(kw_only=True)
class Checkpoint:
    """A model's tensors, and the settings for building the model.

    :param model: tensors by fairseq's parameter names. Tied parameters share one tensor.
    :param config: plain JSON values: `task`, `model` (the model's settings; for fairseq's models, under fairseq's flat
        names), `arch`, `source_lang` and `target_lang` (None if the task has no languages, or if fairseq guessed them
        from the data folder), and the task's own values. `structured` is true if fairseq separates the model's settings
        from the run's. Then `model` has only the model's settings.
    :param averaged_from: file names of the averaged checkpoints; empty for a checkpoint from training.
    :param fairseq_state: everything else in fairseq's own file, apart from the optimiser's state; None for other files.
        A .pt file is written from it, and it overrides `config` there.
    """

    model: dict[str, Tensor]
    config: dict[str, Any]
    averaged_from: tuple[str, ...] = ()
    fairseq_state: dict[str, Any] | None = None

    @property
    def trained_on(self) -> list[str]:
        """The folders of fairseq's training data, from fairseq's own file."""
        state = self.fairseq_state or {}
        task = (state.get("cfg") or {}).get("task") or state.get("args") or {}
        data = (task if isinstance(task, Mapping) else vars(task)).get("data")
        return [folder for folder in data.split(":") if folder] if isinstance(data, str) else []


class _Config(msgspec.Struct, kw_only=True):
    """The keys of every `Checkpoint.config`."""

    task: str | None
    arch: str | None = None
    source_lang: str | None = None
    target_lang: str | None = None
    model: dict[str, Any]


def check_config(content: Any, *, source: str) -> dict[str, Any]:
    """Checks the content of a `Checkpoint.config`. Further keys are allowed.

    :param source: the file of the content.
    :raises SettingError: a field is missing or has another type.
    """
    config = convert(content, dict[str, Any], source=source)
    known = {name: config[name] for name in _Config.__struct_fields__ if name in config}
    return {**msgspec.structs.asdict(convert(known, _Config, source=source)), **config}


def beyond_fairseq(config: Mapping[str, Any]) -> list[str]:
    """The settings in `Checkpoint.config` that change the model but that fairseq would ignore."""
    return [name for name, usual in _BEYOND_FAIRSEQ.items() if config["model"].get(name, usual) != usual]


def needs_newer_format(config: Mapping[str, Any]) -> bool:
    """Whether an earlier rskip would translate wrongly with this `Checkpoint.config`."""
    return bool(beyond_fairseq(config)) or LANGUAGES in config or PAIRS in config


def check_tensors(content: Mapping[Any, Any], *, source: str) -> dict[str, Tensor]:
    """Checks the content of a `Checkpoint.model`: tensors of integers, or of floats of 16 bits or more.

    :param source: the file of the content.
    :raises ValueError: a value is something else. The error names the first one.
    """
    for name, tensor in content.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise ValueError(f"{source} is not a checkpoint: its weights {shown(name)} are a {type(tensor).__name__}")
        if tensor.dtype not in _DTYPES:
            raise ValueError(f"{source}: {name} is of {tensor.dtype}, expected float16, bfloat16, float32 or float64")
    return dict(content)


def tied_names(model: Mapping[str, Tensor]) -> dict[str, str]:
    """Maps each name to an earlier name with the same tensor.

    Two names are tied if their tensors are the same view of the same memory. Embeddings are also tied if they are
    equal.
    """
    first: dict[tuple[object, ...], str] = {}
    embeddings: list[str] = []
    tied: dict[str, str] = {}
    for name, tensor in model.items():
        if tensor.numel() == 0:
            continue
        view = (
            tensor.untyped_storage().data_ptr(),
            tensor.storage_offset(),
            tensor.dtype,
            tensor.shape,
            tensor.stride(),
        )
        if view in first:
            tied[name] = first[view]
            continue
        first[view] = name
        if name in _EMBEDDINGS:
            for earlier in embeddings:
                if tensor.dtype == model[earlier].dtype and torch.equal(tensor, model[earlier]):
                    tied[name] = first[view] = earlier
                    break
            else:
                embeddings.append(name)
    return tied


def cast_floats(model: dict[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    """Converts floating-point tensors to `dtype`. Tied tensors stay tied.

    :raises ValueError: a finite value is out of the range of `dtype`.
    """
    tied = tied_names(model)
    cast: dict[str, Tensor] = {}
    for name, tensor in model.items():
        if name in tied:
            cast[name] = cast[tied[name]]
            continue
        result = tensor.to(dtype) if tensor.is_floating_point() else tensor
        if not name.endswith(_MEANINGLESS) and bool((result.isinf() & ~tensor.isinf()).any()):
            short = str(dtype).removeprefix("torch.")
            raise ValueError(
                f"{name!r} holds {tensor.abs().max().item():g}, out of the range of {short}: "
                "store it as bfloat16 or float32"
            )
        cast[name] = result
    return cast
