"""`rskip adapt`: the lines that would change, for each kind of name."""

from __future__ import annotations

import pytest

from rskip.cli.main import main

OWN = """from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.branch = nn.Linear(8, 8)

    def forward(self, x):
        return x + self.branch(x)


def build():
    return nn.Sequential(Block(), Block())


def wrong():
    return 3
"""


def test_the_lines_are_printed(tmp_path, monkeypatch, capsys):
    (tmp_path / "own_blocks.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    assert main(["adapt", "own_blocks:build", "mhc"]) in (0, None)
    printed = capsys.readouterr().out
    assert "   10 -     return x + self.branch(x)" in printed and "2 × Block (ffn)" in printed
    for model, problem in (("own_blocks:wrong", "not int"), ("own_blocks:no", "no attribute"), ("none", "timm:NAME")):
        assert main(["adapt", model, "mhc"]) == 2
        assert problem in capsys.readouterr().err


def test_libraries_models(tmp_path, capsys):
    pytest.importorskip("timm", reason="timm is an optional library")
    transformers = pytest.importorskip("transformers", reason="transformers is an optional library")
    config = transformers.GPT2Config(n_layer=2, n_head=2, n_embd=16, vocab_size=50)
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path)
    assert main(["adapt", str(tmp_path), "attnres"]) in (0, None)
    assert "attnres in transformer.h: 2 × GPT2Block (attention, ffn)" in capsys.readouterr().out
    assert main(["adapt", "timm:no_such_model", "mhc"]) == 2
