"""A configuration of another program is named, with the command that takes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rskip.cli.main import main

HYDRA = """
task: {_name: translation, data: data-bin, source_lang: en}
model: {_name: transformer, dropout: 0.1}
optimization: {max_update: 100}
"""
JOEY = """
name: mine
data: {train: data/train, src: {lang: en}}
training: {epochs: 3}
model: {encoder: {type: transformer}}
"""
OPEN = """
save_data: run/example
data: {corpus_1: {path_src: a.en, path_tgt: a.de}}
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (HYDRA, "is a configuration of fairseq (hydra): expected a recipe, which has a `kind`; "
         "`fairseq-hydra-train --config-dir . --config-name other` runs it"),
        (JOEY, "is a configuration of JoeyNMT: expected a recipe, which has a `kind`; "
         "`python -m joeynmt train other.yaml` runs it"),
        (OPEN, "is a configuration of OpenNMT-py: expected a recipe, which has a `kind`; "
         "`onmt_train -config other.yaml` runs it"),
        ("train: {arch: x}", "kind is None: expected translation or vision or captioning"),
    ],
)  # fmt: skip
def test_it_is_not_taken_for_a_recipe(
    text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("other.yaml").write_text(text)
    assert main(["run", "other.yaml"]) == 2
    assert said in capsys.readouterr().err
