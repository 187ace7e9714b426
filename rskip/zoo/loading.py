"""Loads models by name or folder: `rskip.load`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rskip import checkpoint
from rskip.checkpoint.config_file import read_config
from rskip.checkpoint.hugging_face import folder_at, hub_folder, is_hub_name, suggest_newest
from rskip.machine.device import is_cpu, usable_device
from rskip.settings.errors import SettingError, errors_about
from rskip.tasks import Task, find_task
from rskip.translation.onnx_settings import ONNX_FILE
from rskip.zoo.files import model_folder
from rskip.zoo.registry import WEIGHTS, ModelEntry, find_model, read_registry, registry_file

if TYPE_CHECKING:
    import torch


def load(
    name: str | os.PathLike[str],
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
    *,
    source_language: str | None = None,
    target_language: str | None = None,
) -> Any:
    """Loads a trained model in eval mode: a `rskip.translation.Translator`, a `rskip.vision.Classifier`, a
    `rskip.captioning.captioner.Captioner`, or a `rskip.language_modeling.TextGenerator`::

        translator = rskip.load("transformer_tiny_2rskip_ln.multi30k.en-de")
        translator("A dog runs.")
        translator = rskip.load("models/mine")  # a folder that `rskip train` wrote
        translator = rskip.load("hf:Helsinki-NLP/opus-mt-en-de")  # a translation model of the Hugging Face Hub
        translator = rskip.load("nllb-200", source_language="eng_Latn", target_language="deu_Latn")  # multilingual

    Weights are safetensors. Those of a pretrained model are verified by their checksum before they are opened;
    `rskip.zoo.files.model_folder` lists where they are searched. For your own task, the result is what the task's
    `load` returns.

    :param name: one of `rskip.zoo.list_models()`; a folder that `rskip train`, `rskip vision train`, `rskip lm train`,
        `rskip import` or publishing wrote, or of a run that holds such a folder as `training`; a checkpoint of a
        language model that fairseq trained; or `hf:OWNER/NAME` (docs/other_models.md lists them). In a string, a
        model's name takes precedence over a folder of that name.
    :param device: the model's device (default: the CPU).
    :param dtype: number format of the computation, a torch.dtype or its name (default: float32, for any format of the
        weights). Translators and captioners: float32, bfloat16, or on a CPU "int8". Classifiers: float32, bfloat16 or
        float16. Language models: float32 or bfloat16.
    :param source_language, target_language: languages of a multilingual translation model, which needs both: its codes,
        or two letters, such as "de", if only one code has this language. Of any other translation model, its own.
    :raises ValueError: the name is unknown (the error suggests similar ones), the device or dtype is not possible, your
        own connection is not registered, or a file is damaged.
    :raises FileNotFoundError: the model's files can't be found, or the folder holds no model.
    :raises OSError: the server can't be reached, or the cache can't be written.
    """
    path = registry_file()
    models = read_registry(path)
    languages = source_language, target_language
    if isinstance(name, os.PathLike) or (name not in models and _is_path(name)):
        return load_folder(Path(name), device=device, dtype=dtype, languages=languages)
    entry = find_model(models, name)
    if languages == (None, None):
        return load_entry(entry, root=path.parent, device=device, dtype=dtype)
    _check_translates(entry.task, languages, source=entry.name)
    return load_entry(entry, root=path.parent, device=device, dtype=dtype).between(*languages)


def _is_path(text: str) -> bool:
    return is_hub_name(text) or len(Path(text).parts) > 1 or Path(text).exists()


def load_folder(
    folder: Path,
    *,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
    languages: tuple[str | None, str | None] = (None, None),
) -> Any:
    """Loads the model of a folder, like `load`.

    :raises FileNotFoundError: the folder does not exist, or it holds no model.
    :raises ValueError: as `load`.
    """
    if is_hub_name(folder):
        folder = hub_folder(folder)
    if folder_at(folder):
        task = find_task("translation")
    elif folder.suffix == ".pt" and folder.is_file():
        task = _task(checkpoint.read_checkpoint(folder).config["task"], source=str(folder))
        if task.name == "translation":
            raise FileNotFoundError(
                f"{folder} is a translation model's checkpoint: convert it with `rskip import fairseq --checkpoint "
                f"{folder} --dictionaries DATA --output MODEL`, where DATA is its data folder, then load MODEL"
            )
        if not task.reads_checkpoints:
            raise FileNotFoundError(f"{folder}: {_why_no_model(folder)}")
    else:
        if not (folder / WEIGHTS).is_file() and (folder / "training" / WEIGHTS).is_file():
            folder /= "training"  # of a run
        if not (folder / WEIGHTS).is_file():
            raise FileNotFoundError(f"{folder}: {_why_no_model(folder)}")
        task = _task(read_config(folder / WEIGHTS)["task"], source=str(folder))
    options = _options(task, str(folder), device, dtype)
    if languages != (None, None):
        _check_translates(task.name, languages, source=str(folder))
        options |= zip(("source_language", "target_language"), languages, strict=True)
    return task.load(folder, **options)


def _why_no_model(path: Path) -> str:
    parts = str(path).split(":")
    if (path / ONNX_FILE).is_file() or (len(parts) > 1 and all(Path(part).exists() for part in parts)):
        what = "ensembles" if len(parts) > 1 else "ONNX folders"
        return f"rskip.load and `rskip serve` can't read {what}: use `rskip translate` or Translator.from_pretrained"
    problem = f"holds no {WEIGHTS}" if path.is_dir() else "is a file" if path.exists() else "no such folder"
    expected = (
        "expected a complete folder from `rskip train`, `rskip vision train`, `rskip lm train` or `rskip import`, a "
        "Hugging Face folder, hf:OWNER/NAME, or a name from `rskip zoo list`"
    )
    return f"{problem}: {suggest_newest(path) or expected}"


def load_entry(
    entry: ModelEntry,
    *,
    root: Path,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
) -> Any:
    """Loads the model of an entry, like `load`.

    :param root: root of the checkout whose registry has the entry.
    """
    task = _task(entry.task, source=entry.name)
    options = _options(task, entry.name, device, dtype)
    return task.load(model_folder(entry, root=root), **options)


def _check_translates(task: str, languages: tuple[str | None, str | None], *, source: str) -> None:
    """Refuses languages for a model of another task."""
    if task != "translation":
        side = "target" if languages[0] is None else "source"
        problem = f"has no effect on a model for {task}"
        raise SettingError(f"{side}_language", problem, advice="leave it out", source=source)


def _task(name: object, *, source: str) -> Task[Any]:
    with errors_about(source):
        return find_task(name)


def _options(
    task: Task[Any], name: str, device: str | torch.device | None, dtype: str | torch.dtype | None
) -> dict[str, Any]:
    """The precision and the device.

    :raises ValueError: the task does not support this precision, or the device does not exist.
    """
    precision = "float32" if dtype is None else str(dtype).removeprefix("torch.")
    if precision not in task.precisions:
        raise ValueError(f"{name} can't compute in {precision!r}: expected one of {', '.join(task.precisions)}")
    return {"precision": precision, "device": "cpu" if device is None or is_cpu(device) else usable_device(device)}
