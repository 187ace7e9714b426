"""Pretrained models, ready for use."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rskip.zoo.entry import WEIGHTS, ModelEntry
from rskip.zoo.files import model_folder
from rskip.zoo.names import find_model
from rskip.zoo.registry import read_registry, registry_file

if TYPE_CHECKING:
    import torch

CLASSIFIER_PRECISIONS = ("float32", "bfloat16", "float16")


def load(name: str, device: str | torch.device | None = None, dtype: str | torch.dtype | None = None) -> Any:
    """A pretrained model in eval mode: a `rskip.translation.Translator`, or a `rskip.vision.PreActResNet`.

        translator = rskip.load("transformer_tiny_2rskip_ln.multi30k.en-de")
        translator("A dog runs.")

    A classifier has `transforms()`, which gives what makes an image its input, in float32, and `classes`, the names of
    its logits. Weights are safetensors, verified by their sum before they are opened. `rskip.zoo.files.model_folder`
    says where they are looked for.

    :param name: one of `rskip.zoo.list_models()`.
    :param device: where the model is to be; default: the CPU.
    :param dtype: what it computes in, a torch.dtype or its name; default: float32, whatever the weights are stored in.
        Translators: float32, bfloat16, or on a CPU "int8". Classifiers: float32, bfloat16 or float16.
    :raises ValueError: an unknown name (the nearest are offered), no such device, a dtype that the model doesn't have,
        a damaged file.
    :raises FileNotFoundError: the model's files are nowhere to be had.
    :raises OSError: the server can't be reached, or the cache can't be written.
    """
    path = registry_file()
    return load_entry(find_model(read_registry(path), name), root=path.parent, device=device, dtype=dtype)


def load_entry(
    entry: ModelEntry,
    *,
    root: Path,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
) -> Any:
    """The model of an entry, as `load` gives it.

    :param root: of the checkout whose registry has the entry.
    """
    from rskip.machine.device import usable_device  # imports PyTorch

    precision = _precision(entry, dtype)
    device = usable_device("cpu" if device is None else device)
    folder = model_folder(entry, root=root)
    if entry.task == "translation":
        return _load_translator(folder, precision, device)
    return _load_classifier(folder, precision, device)


def _precision(entry: ModelEntry, dtype: str | torch.dtype | None) -> str:
    from rskip.transformer.precision import PRECISIONS  # imports PyTorch

    name = "float32" if dtype is None else str(dtype).removeprefix("torch.")
    known = PRECISIONS if entry.task == "translation" else CLASSIFIER_PRECISIONS
    if name not in known:
        raise ValueError(f"{entry.name} can't compute in {name!r}: expected one of {', '.join(known)}")
    return name


def _load_translator(folder: Path, precision: str, device: torch.device) -> Any:
    from rskip.translation import Translator

    return Translator.from_pretrained(folder / WEIGHTS, precision=precision, device=device)


def _load_classifier(folder: Path, precision: str, device: torch.device) -> Any:
    import torch

    from rskip.vision.model_file import CONFIG_FILE, load_model
    from rskip.vision.transforms import CifarClassification

    model, description = load_model(folder / WEIGHTS)
    model.to(device, getattr(torch, precision))
    config = folder / CONFIG_FILE
    classes = json.loads(config.read_text(encoding="utf-8")).get("classes")
    logits = description.config["num_classes"]
    named = isinstance(classes, list) and all(isinstance(each, str) for each in classes)
    if not named or len(classes) != logits:
        raise ValueError(f"{config} is damaged: its classes are {classes!r}, expected {logits} names")
    try:
        CifarClassification(description.dataset)
    except ValueError as error:
        raise ValueError(f"{config} is damaged: {error}") from None
    pretrained: Any = model  # nn.Module's own attributes are typed as modules and tensors
    pretrained.transforms = partial(CifarClassification, description.dataset)
    pretrained.classes = tuple(classes)
    return pretrained
