"""`rskip inspect` as a user meets it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from rskip.cli.main import main
from tests.corpora.mmap_files import mmap_files


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data-bin"
    folder.mkdir()
    for split, sides in {
        "train": {"en": [[4, 5, 2], [5, 2], [4, 4, 4, 2]], "de": [[4, 2], [4, 5, 2], [4, 4, 2]]},
        "test": {"en": [[4, 3, 2]], "de": [[3, 5, 5, 2]]},
    }.items():
        for language, sentences in sides.items():
            mmap_files(folder / f"{split}.en-de.{language}", sentences)
    (folder / "dict.en.txt").write_text("dog 1\nruns 1\n")
    (folder / "dict.de.txt").write_text("Hund 1\nläuft 1\n", encoding="utf-8")
    return folder


def test_text(data, capsys):
    assert main(["inspect", str(data), "--examples", "1", "--lopsided", "0", "--seed", "4"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"{data}: en → de\n")
    assert "  test   en          1       2  2.00       2     2     2        2      0  50.00 %\n" in printed
    assert "lopsided" not in printed
    assert printed.count("  line ") == 1
    assert main(["inspect", str(data), "--examples", "1", "--lopsided", "0", "--seed", "4"]) == 0
    assert capsys.readouterr().out == printed


def test_json_is_one_object_with_everything(data, capsys):
    assert main(["inspect", str(data), "--json", "--examples", "9"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found.keys() == {
        "data", "source_language", "target_language", "shards", "corpus", "cleaning", "splits", "joint_dictionary",
        "vocabulary", "shown_split", "lopsided", "examples",
    }  # fmt: skip
    assert found["splits"]["test"]["ratio"]["overall"] == 1.5
    assert [pair["target"] for pair in found["examples"]] == ["Hund", "Hund läuft", "Hund Hund"]
    assert [pair["number"] for pair in found["lopsided"]] == [1, 2, 3]


def test_mistakes_are_one_line(data, tmp_path, refused, monkeypatch):
    refused("none does not exist: expected a folder", "inspect", str(tmp_path / "none"))
    refused("did you mean", "inspect", "transformer_tiny_2rskip.multi30k.en-de")
    refused("no model none.pt", "inspect", "none.pt", "--dictionaries", str(data))
    (tmp_path / "ct2").mkdir()
    (tmp_path / "ct2/model.bin").touch()
    refused("ct2 is a CTranslate2 model", "inspect", str(tmp_path / "ct2"))
    refused("--examples is -1: expected 0 or more", "inspect", str(data), "--examples", "-1")
    refused("--lopsided is -2: expected 0 or more", "inspect", str(data), "--lopsided", "-2")
    refused("--dictionaries is only for a model", "inspect", str(data), "--dictionaries", str(data))
    refused("x.gif: expected a file name that ends in .png or .svg", "inspect", str(data), "--plot", "x.gif")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    refused("a plot needs matplotlib: install the extra plots", "inspect", str(data), "--plot", str(tmp_path / "x.svg"))
