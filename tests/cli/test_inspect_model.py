"""`rskip inspect MODEL`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from rskip.checkpoint import Checkpoint, write_checkpoint
from rskip.cli.main import main
from rskip.text import Dictionary
from rskip.transformer import Transformer, TransformerConfig
from rskip.translation.model_files import open_model
from tests.checkpoint.hugging_face.conftest import marian

__all__ = ["marian"]

SIZES = {
    f"{side}_{name}": value
    for side in ("encoder", "decoder")
    for name, value in {"embed_dim": 16, "ffn_embed_dim": 24, "attention_heads": 2, "layers": 1}.items()
}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A multilingual model of ours without its text pipeline."""
    built = Transformer(TransformerConfig(source_vocabulary=7, target_vocabulary=7, **SIZES))
    languages = {"form": "__{}__", "encoder": "source", "decoder": "first"}
    config = {"arch": "transformer", "task": "translation", "source_lang": None, "target_lang": None}
    config |= {"model": {**SIZES, "connection": "1xskip+ln"}, "languages": languages}
    with torch.no_grad():
        content = Checkpoint(model=built.state_dict(), config=config)
    write_checkpoint(tmp_path / "model.safetensors", content)
    Dictionary(["w", "__fr__", "__en__"]).save(tmp_path / "dict.txt")
    return tmp_path


def test_the_languages_are_shown(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(model)]) == 0
    printed = capsys.readouterr().out
    assert "languages     2: en, fr\n" in printed
    assert "such as __en__" in printed
    assert "text          not found: text must be given" in printed
    assert main(["inspect", str(model / "model.safetensors"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["languages"], found["sizes"]["encoder layers"]) == (["en", "fr"], 1)


def test_a_model_of_the_hub(model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("rskip.cli._model.hub_folder", lambda name: {"hf:org/tiny": model}[str(name)])
    assert main(["inspect", "hf:org/tiny"]) == 0
    assert "languages     2: en, fr\n" in capsys.readouterr().out


@pytest.mark.parametrize("of_hugging_face", [False, True])
def test_pytorch_is_not_needed(
    model: Path,
    marian: Callable[..., Path],
    of_hugging_face: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = marian() if of_hugging_face else model
    tensors = open_model(folder).checkpoint.model.values()
    parameters = sum({id(each): each.numel() for each in tensors}.values())
    monkeypatch.setitem(sys.modules, "torch", None)
    assert main(["inspect", str(folder)]) == 0
    assert f"parameters    {parameters:,}\n" in capsys.readouterr().out
