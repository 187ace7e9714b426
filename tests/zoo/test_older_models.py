"""Model folders as rskip published them before every task had one form: they load, and give the same model."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from rskip.captioning.captioner import Captioner
from rskip.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from rskip.translation import Translator
from rskip.vision import Classifier


def older_translation(folder: Path, checkpoint: Checkpoint) -> None:
    """The settings were in the weights' metadata, and there was no config.json."""
    write_checkpoint(folder / "model.safetensors", checkpoint)
    (folder / "config.json").unlink()


def older_captioning(folder: Path, checkpoint: Checkpoint) -> None:
    """They were in both, and config.json had nothing else."""
    write_checkpoint(folder / "model.safetensors", checkpoint)
    (folder / "config.json").write_text(json.dumps(checkpoint.config["model"]))


def older_vision(folder: Path, checkpoint: Checkpoint) -> None:
    """The weights had no metadata, and the task another name."""
    save_file(checkpoint.model, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "task": "image-classification"}))


def translator_in_torch(folder: Path) -> Translator:
    return Translator.from_pretrained(folder).in_torch()


@pytest.mark.parametrize(
    ("name", "load", "make_older"),
    [
        ("multi30k_en_de/sas", translator_in_torch, older_translation),
        ("flickr8k/1xskip_ln", Captioner.from_pretrained, older_captioning),
        ("cifar10_resnet20/preact20_1xskip", Classifier.from_pretrained, older_vision),
    ],
)
def test_an_older_folder_gives_the_same_model(
    root: Path, tmp_path: Path, name: str, load: Callable[[Path], Any], make_older: Callable[[Path, Checkpoint], None]
) -> None:
    published, older = root / "checkpoints" / name, tmp_path / "older"
    shutil.copytree(published, older)
    make_older(older, read_checkpoint(published / "model.safetensors"))
    expected, found = load(published).model, load(older).model
    assert repr(found) == repr(expected)
    for name, tensor in expected.state_dict().items():
        assert torch.equal(found.state_dict()[name], tensor), name
