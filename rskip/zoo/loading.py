"""Pretrained models by name, ready for use: `rskip.load`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rskip.settings.errors import SettingError
from rskip.tasks import find_task
from rskip.zoo.files import model_folder
from rskip.zoo.registry import ModelEntry, find_model, read_registry, registry_file

if TYPE_CHECKING:
    import torch

    from rskip.captioning.captioner import Captioner
    from rskip.translation import Translator
    from rskip.vision import Classifier


def load(
    name: str, device: str | torch.device | None = None, dtype: str | torch.dtype | None = None
) -> Translator | Classifier | Captioner:
    """A pretrained model in eval mode: a `rskip.translation.Translator`, a `rskip.vision.Classifier`, or a
    `rskip.captioning.captioner.Captioner`::

        translator = rskip.load("transformer_tiny_2rskip_ln.multi30k.en-de")
        translator("A dog runs.")

    Weights are safetensors, verified by their sum before they are opened. `rskip.zoo.files.model_folder` says where
    they are looked for. For your own task, the result is what the task's `load` returns.

    :param name: one of `rskip.zoo.list_models()`.
    :param device: where the model is to be; default: the CPU.
    :param dtype: what it computes in, a torch.dtype or its name; default: float32, whatever the weights are stored in.
        Translators and captioners: float32, bfloat16, or on a CPU "int8". Classifiers: float32, bfloat16 or float16.
    :raises ValueError: an unknown name (the nearest are offered), no such device, a dtype that the model doesn't have,
        your own connection without its registration, a damaged file.
    :raises FileNotFoundError: the model's files are nowhere to be had.
    :raises OSError: the server can't be reached, or the cache can't be written.
    """
    path = registry_file()
    model: Translator | Classifier | Captioner = load_entry(
        find_model(read_registry(path), name), root=path.parent, device=device, dtype=dtype
    )
    return model


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
    from rskip.connections import parse_connection  # these import PyTorch
    from rskip.machine.device import usable_device

    try:
        task = find_task(entry.task)
    except SettingError as error:
        raise error.within(source=entry.name) from None
    precision = "float32" if dtype is None else str(dtype).removeprefix("torch.")
    if precision not in task.precisions:
        raise ValueError(f"{entry.name} can't compute in {precision!r}: expected one of {', '.join(task.precisions)}")
    try:
        parse_connection(entry.connection)
    except SettingError as error:
        advice = "import the module that registers it, then load the model"
        raise SettingError(
            error.name, error.problem, expected=error.expected, advice=advice, source=entry.name
        ) from None
    device = usable_device("cpu" if device is None else device)
    return task.load(model_folder(entry, root=root), precision=precision, device=device)
