"""A small model, and fixtures that forbid connections and processes."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from rskip.checkpoint import Checkpoint, write_checkpoint
from rskip.text import Dictionary, TextConfig, TextPipeline
from rskip.text.subwords import BytePairEncoding
from rskip.transformer import Transformer, TransformerConfig

CODES = "#version: 0.2\na b\nab c</w>\n"
WORDS = ["a", "ab", "abc", "b@@", "c", "d", ".", "ab@@"]


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a model that translates, although into nonsense."""
    folder = tmp_path_factory.mktemp("model")
    for language in ("en", "de"):
        Dictionary(WORDS).save(folder / f"dict.{language}.txt")
    each = {"embed_dim": 8, "ffn_embed_dim": 8, "layers": 1, "attention_heads": 2}
    sizes: dict[str, Any] = {f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in each.items()}
    sizes["share_all_embeddings"] = True
    count = len(WORDS) + 4
    config: dict[str, Any] = {"encoder_connection": "2rskip+ln", "decoder_connection": "2rskip+ln", **sizes}
    torch.manual_seed(1)
    weights = Transformer(TransformerConfig(count, count, **config)).state_dict()
    about = {"arch": "transformer_rskip_ln_tiny", "task": "translation", "source_lang": "en", "target_lang": "de"}
    checkpoint = Checkpoint(model=weights, config={**about, "model": {"connection": "2rskip+ln", **sizes}})
    write_checkpoint(folder / "model.safetensors", checkpoint)
    TextPipeline(TextConfig(source_language="en", target_language="de"), BytePairEncoding(CODES)).save(folder / "text")
    return folder


@pytest.fixture(autouse=True)
def nothing_leaves(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Forbids connections and processes, and changes to a new current folder."""

    def refuse(what: str) -> Callable[..., Any]:
        def refused(*_: Any, **__: Any) -> Any:
            raise OSError(f"{what} is not for this test")

        return refused

    monkeypatch.setattr(socket.socket, "connect", refuse("the network"))
    monkeypatch.setattr(subprocess, "Popen", refuse("another process"))
    monkeypatch.setenv("RSKIP_DATA", str(tmp_path / "cache"))
    monkeypatch.setenv("RSKIP_CACHE", str(tmp_path / "cache"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
