"""Captioning models on disk: folders with config.json, model.safetensors and dict.txt, or checkpoints of fairseq."""

from __future__ import annotations

import os
import shutil
from argparse import Namespace
from dataclasses import fields
from pathlib import Path

import torch

from rskip.captioning.captions import DICTIONARY
from rskip.captioning.config import CaptioningConfig
from rskip.captioning.model import CaptioningTransformer
from rskip.checkpoint import Checkpoint, read_checkpoint, write_model
from rskip.checkpoint.checkpoint import of_other_task
from rskip.checkpoint.config_file import CONFIG, WEIGHTS
from rskip.checkpoint.transformer import check_parameters, check_sizes
from rskip.settings.errors import errors_about
from rskip.text import Dictionary
from rskip.transformer.undrawn import undrawn

TASK = "captioning"  # in config.json
# The flag in fairseq's checkpoints that holds the part of CaptioningConfig that the data determines.
OF_DATA = "captioning_data"


def load_captioning_model(
    folder: str | os.PathLike[str], device: str | torch.device = "cpu"
) -> tuple[CaptioningTransformer, Dictionary]:
    """Loads the model and dictionary from a folder of `export_captioning_model`, in float32 and evaluation mode.

    :raises FileNotFoundError: a file is missing.
    :raises ValueError: a file is damaged, the parameters are another model's, or the dictionary has another size.
    """
    folder = Path(folder)
    for name in (WEIGHTS, DICTIONARY):
        if not (folder / name).is_file():
            raise FileNotFoundError(f"no captioning model in {folder}: expected {CONFIG}, {WEIGHTS} and {DICTIONARY}")
    checkpoint, source = read_checkpoint(folder / WEIGHTS), folder / CONFIG
    if checkpoint.config["task"] != TASK:
        raise of_other_task(checkpoint.config, TASK).within(source=str(source))
    with errors_about(source):
        config = CaptioningConfig.from_dict(checkpoint.config["model"])
    dictionary = load_words(folder / DICTIONARY, config)
    model = _build(config, checkpoint, source=folder / WEIGHTS)
    return model.to(device), dictionary


def load_words(path: Path, config: CaptioningConfig) -> Dictionary:
    """Reads the dictionary of a model.

    :raises FileNotFoundError: the file doesn't exist.
    :raises ValueError: the dictionary is damaged or has another size than the model's.
    """
    dictionary = Dictionary.load(path)
    if len(dictionary) != config.vocabulary:
        raise ValueError(
            f"{path} has {len(dictionary):,} tokens (including 4 special ones), but the model has "
            f"{config.vocabulary:,}: give the dictionary of its training data"
        )
    return dictionary


def read_captioning_checkpoint(path: str | os.PathLike[str]) -> CaptioningTransformer:
    """Loads the model of a fairseq checkpoint (--task captioning), in float32 and evaluation mode.

    :raises FileNotFoundError: the file doesn't exist.
    :raises ValueError: the file is damaged, or the checkpoint is of another task.
    """
    path = Path(path)
    checkpoint = read_checkpoint(path)
    return _build(_config_of(checkpoint, path), checkpoint, source=path)


def export_captioning_model(
    checkpoint: str | os.PathLike[str],
    dictionary: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    dtype: torch.dtype | None = None,
) -> None:
    """Writes a folder for `load_captioning_model` from a fairseq checkpoint and the dictionary of its data.

    :param dtype: number format of the stored weights; None: unchanged.
    :raises FileNotFoundError: a file doesn't exist.
    :raises ValueError: a file is damaged, or the checkpoint is of another task.
    """
    folder, read = Path(folder), read_checkpoint(checkpoint)
    model = _config_of(read, Path(checkpoint)).to_dict()
    config = {"task": TASK, "arch": read.config["arch"], "model": model}
    write_model(folder, Checkpoint(model=read.model, config=config, averaged_from=read.averaged_from), dtype=dtype)
    shutil.copyfile(dictionary, folder / DICTIONARY)


def _config_of(checkpoint: Checkpoint, path: Path) -> CaptioningConfig:
    state = checkpoint.fairseq_state or {}
    flags = (state.get("cfg") or {}).get("model") or {}
    flags = vars(flags) if isinstance(flags, Namespace) else dict(flags)
    if OF_DATA not in flags:
        raise of_other_task(checkpoint.config, TASK).within(source=str(path))
    names = {field.name for field in fields(CaptioningConfig)}
    values = {name: value for name, value in flags.items() if name in names}
    for side in ("encoder_connection", "decoder_connection"):
        values[side] = values.get(side) or flags["connection"]
    return CaptioningConfig.from_dict({**values, **flags[OF_DATA], "checkpoint_activations": False})


def _build(config: CaptioningConfig, checkpoint: Checkpoint, *, source: Path) -> CaptioningTransformer:
    with errors_about(source):
        check_sizes(config, checkpoint.model)
        with undrawn():
            model = CaptioningTransformer(config)
        check_parameters(model.state_dict(), checkpoint.model, _described(config))
    model.load_state_dict(checkpoint.model)
    return model.requires_grad_(False).eval()


def _described(config: CaptioningConfig) -> str:
    backbone = config.features.get("backbone", "features")
    return (
        f"the captioning Transformer of its config ({backbone} of {config.feature_dim}, {config.encoder_connection}, "
        f"{config.decoder_connection})"
    )
