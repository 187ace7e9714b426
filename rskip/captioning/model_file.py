"""A captioning model on disk: a folder {config.json, model.safetensors, dict.txt}, or a checkpoint of fairseq's."""

from __future__ import annotations

import json
import os
import shutil
from argparse import Namespace
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

from rskip.captioning.captions import DICTIONARY
from rskip.captioning.config import CaptioningConfig
from rskip.captioning.model import CaptioningTransformer
from rskip.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from rskip.checkpoint.transformer import check_parameters, check_sizes
from rskip.files.whole import atomic_file
from rskip.settings.errors import SettingError
from rskip.settings.text import read_json
from rskip.text import Dictionary
from rskip.transformer.undrawn import undrawn

CONFIG, WEIGHTS = "config.json", "model.safetensors"
# Where fairseq's checkpoints have what the data decided of a CaptioningConfig, among the model's flags.
OF_DATA = "captioning_data"


def load_captioning_model(
    folder: str | os.PathLike[str], device: str | torch.device = "cpu"
) -> tuple[CaptioningTransformer, Dictionary]:
    """The model of a folder that `export_captioning_model` wrote, in float32 and eval mode, and its words.

    :raises FileNotFoundError: a file is missing.
    :raises ValueError: a damaged file, parameters of another model, or a dictionary of another size.
    """
    folder = Path(folder)
    for name in (CONFIG, WEIGHTS, DICTIONARY):
        if not (folder / name).is_file():
            raise FileNotFoundError(f"no captioning model in {folder}: expected {CONFIG}, {WEIGHTS} and {DICTIONARY}")
    try:
        config = CaptioningConfig.from_dict(read_json(folder / CONFIG))
    except SettingError as error:
        raise error.within(source=str(folder / CONFIG)) from None
    dictionary = load_words(folder / DICTIONARY, config)
    model = _build(config, read_checkpoint(folder / WEIGHTS), source=folder / WEIGHTS)
    return model.to(device), dictionary


def load_words(path: Path, config: CaptioningConfig) -> Dictionary:
    """The words of a model.

    :raises FileNotFoundError: no such file.
    :raises ValueError: a damaged dictionary, or one of another size than the model's.
    """
    dictionary = Dictionary.load(path)
    if len(dictionary) != config.vocabulary:
        raise ValueError(
            f"{path} has {len(dictionary):,} tokens (4 special ones counted), but the model has "
            f"{config.vocabulary:,}: give the dictionary of its data"
        )
    return dictionary


def read_captioning_checkpoint(path: str | os.PathLike[str]) -> CaptioningTransformer:
    """The model of a checkpoint that fairseq wrote (--task captioning), in float32 and eval mode.

    :raises FileNotFoundError: no file there.
    :raises ValueError: a damaged file, or a checkpoint of another task.
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
    """Writes the folder that `load_captioning_model` reads, out of fairseq's checkpoint and its data's dictionary.

    :param dtype: that the weights are stored in; None: as they are.
    :raises FileNotFoundError: no such file.
    :raises ValueError: a damaged file, or a checkpoint of another task.
    """
    folder = Path(folder)
    read = read_checkpoint(checkpoint)
    config = _config_of(read, Path(checkpoint))
    plain = config.to_dict()
    folder.mkdir(parents=True, exist_ok=True)
    about: dict[str, Any] = {"source_lang": None, "target_lang": None, "model": plain}
    about |= {key: read.config[key] for key in ("arch", "task")}
    weights = Checkpoint(model=read.model, config=about, averaged_from=read.averaged_from)
    write_checkpoint(folder / WEIGHTS, weights, dtype=dtype)
    with atomic_file(folder / CONFIG) as temporary:
        temporary.write_text(json.dumps(plain, indent=2) + "\n", encoding="utf-8")
    shutil.copyfile(dictionary, folder / DICTIONARY)


def _config_of(checkpoint: Checkpoint, path: Path) -> CaptioningConfig:
    state = checkpoint.fairseq_state or {}
    flags = (state.get("cfg") or {}).get("model") or {}
    flags = vars(flags) if isinstance(flags, Namespace) else dict(flags)
    if OF_DATA not in flags:
        raise ValueError(f"{path} is a checkpoint of the task {checkpoint.config['task']!r}, expected captioning")
    names = {field.name for field in fields(CaptioningConfig)}
    values = {name: value for name, value in flags.items() if name in names}
    for side in ("encoder_connection", "decoder_connection"):
        values[side] = values.get(side) or flags["connection"]
    return CaptioningConfig.from_dict({**values, **flags[OF_DATA], "checkpoint_activations": False})


def _build(config: CaptioningConfig, checkpoint: Checkpoint, *, source: Path) -> CaptioningTransformer:
    try:
        check_sizes(config, checkpoint.model)
        with undrawn():
            model = CaptioningTransformer(config)
        check_parameters(model.state_dict(), checkpoint.model, _described(config))
    except SettingError as error:
        raise error.within(source=str(source)) from None
    model.load_state_dict(checkpoint.model)
    return model.requires_grad_(False).eval()


def _described(config: CaptioningConfig) -> str:
    backbone = config.features.get("backbone", "features")
    return (
        f"the captioning Transformer of its config ({backbone} of {config.feature_dim}, {config.encoder_connection}, "
        f"{config.decoder_connection})"
    )
