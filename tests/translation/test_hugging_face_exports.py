"""Exports of Hugging Face folders are right, or refused in one line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rskip.checkpoint import read_checkpoint
from rskip.cli.main import main
from rskip.translation import Translator
from tests.checkpoint.hugging_face.conftest import write_marian
from tests.checkpoint.hugging_face.families import write_fsmt, write_m2m, write_mbart, write_nllb

LINES = ["the dog runs", "two cats sleep near our old house."]
SEARCH: dict[str, Any] = {"beam": 4, "max_length_a": 0, "max_length_b": 12}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_marian(tmp_path_factory.mktemp("models") / "opus")


def test_fairseq_runs_it_with_rskip_only(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """tests/fairseq_plugin has what it computes there."""
    (output := tmp_path / "exported").mkdir()
    command = ["export", "fairseq", "--model", str(folder), "--output", str(output / "model.pt")]
    assert main([*command, "--vanilla"]) == 2
    assert "fairseq's own transformer has no output_bias=True or start='begin'" in capsys.readouterr().err
    assert not (output / "model.pt").exists()
    assert main(command) == 0
    assert capsys.readouterr().out.endswith("--user-dir rskip\n")
    assert read_checkpoint(output / "model.pt").config["arch"] == "transformer_skip_ln"
    ours, theirs = (Translator.from_pretrained(each).translate(LINES, **SEARCH) for each in (folder, output))
    assert [each.text for each in theirs] == [each.text for each in ours]


def test_an_ensemble_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["ct2"], ["onnx"], ["fairseq"], ["huggingface"]):
        assert main(["export", *command, "--model", "a.pt:b.pt", "--output", str(tmp_path / "model.pt")]) == 2
        assert "a.pt:b.pt is an ensemble: expected one model to export" in capsys.readouterr().err


@pytest.mark.parametrize("write", [write_m2m, write_nllb, write_mbart])
def test_multilingual_models_are_refused(
    write: Callable[[Path], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write(tmp_path / "model")
    capsys.readouterr()
    for command in (["ct2"], ["onnx"], ["fairseq"], ["fairseq", "--vanilla"], ["huggingface"]):
        assert main(["export", *command, "--model", str(folder), "--output", str(tmp_path / "exported.pt")]) == 2
        error = capsys.readouterr().err
        assert f"{folder} is a multilingual model, which can't be exported" in error
        assert error.count("\n") == 1
    assert not (tmp_path / "exported.pt").exists()


def test_fsmt_becomes_fairseqs_own_transformer_and_marian(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, own, marian = write_fsmt(tmp_path / "model"), tmp_path / "own.pt", tmp_path / "marian"
    command = ["export", "fairseq", "--vanilla", "--model", str(folder), "--output"]
    assert main([*command, str(own)]) == 0
    assert main([*command, str(tmp_path / "other.pt")]) == 2
    assert "dict.en.txt exists: choose another --output, or use --force" in capsys.readouterr().err
    expected = Translator.from_pretrained(folder).translate(LINES, **SEARCH)
    found = Translator.from_pretrained(own).translate(LINES, **SEARCH)
    assert [each.text for each in found] == [each.text for each in expected]
    assert [each.score for each in found] == pytest.approx([each.score for each in expected], abs=1e-5)
    assert main(["export", "huggingface", "--model", str(folder), "--output", str(marian)]) == 0
    for one, other in zip(expected, Translator.from_pretrained(marian).translate(LINES, **SEARCH), strict=True):
        assert one.text == other.text and one.score == pytest.approx(other.score, abs=1e-5)
