"""`rskip import`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from rskip.checkpoint import read_checkpoint, write_checkpoint
from rskip.checkpoint.stock import stock_checkpoint
from rskip.checkpoint.tensors import tied_names
from rskip.cli.main import main
from rskip.translation import Translator

SENTENCES = ["A dog runs through the grass.", "Two men are playing guitar on a stage."]


@pytest.fixture(scope="module")
def folder(root: Path) -> Path:
    return root / "checkpoints" / "multi30k_en_de/1xskip_ln"


@pytest.fixture
def data(folder: Path, tmp_path: Path) -> Path:
    """A folder such as `rskip prepare` makes: dictionaries and text/, no checkpoint."""
    data = tmp_path / "data-bin"
    shutil.copytree(folder / "text", data / "text")
    for language in ("en", "de"):
        shutil.copy(folder / f"dict.{language}.txt", data)
    return data


def stock_file(folder: Path, path: Path) -> Path:
    """The trained model as fairseq's stock `transformer`, its languages unknown."""
    model = Translator.from_pretrained(folder).in_torch().model.model
    write_checkpoint(path, stock_checkpoint(model, source_language=None, target_language=None))
    return path


def test_there_and_back_our_model_is_the_same(folder, data, tmp_path, capsys):
    exported, imported = tmp_path / "model.pt", tmp_path / "imported"
    assert main(["export", "fairseq", "--model", str(folder), "--output", str(exported)]) == 0
    command = ["import", "fairseq", "--checkpoint", exported, "--dictionaries", data, "--output", imported]
    assert main([*map(str, command)]) == 0
    assert f"rskip translate --model {imported}" in capsys.readouterr().out
    assert sorted(str(path.relative_to(imported)) for path in imported.rglob("*")) == [
        "config.json", "dict.de.txt", "dict.en.txt", "model.safetensors",
        "text", "text/codes.bpe", "text/pipeline.json",
    ]  # fmt: skip
    for name in ("dict.de.txt", "dict.en.txt", "text/codes.bpe"):
        assert (imported / name).read_bytes() == (folder / name).read_bytes()
    before, after = (read_checkpoint(each / "model.safetensors") for each in (folder, imported))
    assert (after.config, after.averaged_from) == (before.config, before.averaged_from)
    assert after.model.keys() == before.model.keys() and tied_names(after.model) == tied_names(before.model)
    for name, tensor in before.model.items():
        assert after.model[name].dtype == tensor.dtype and torch.equal(after.model[name], tensor), name


def test_a_stock_model_translates_and_goes_back(folder, data, tmp_path):
    stock, imported, back = stock_file(folder, tmp_path / "stock.pt"), tmp_path / "imported", tmp_path / "back.pt"
    assert main(
        [
            "import", "fairseq", "--checkpoint", str(stock), "--dictionaries", str(data), "--output", str(imported),
            "--text", str(folder / "text" / "codes.bpe"), "--source-lang", "en", "--target-lang", "de",
        ]
    ) == 0  # fmt: skip
    expected = [each.text for each in Translator.from_pretrained(folder).translate(SENTENCES)]
    assert [each.text for each in Translator.from_pretrained(imported).translate(SENTENCES)] == expected

    assert main(["export", "fairseq", "--model", str(imported), "--output", str(back)]) == 0
    before, after = read_checkpoint(stock), read_checkpoint(back)
    assert after.config == {**before.config, "source_lang": "en", "target_lang": "de"}
    assert after.model.keys() == before.model.keys()
    assert all(torch.equal(tensor, after.model[name]) for name, tensor in before.model.items())


def test_what_was_said_or_assumed_of_the_text_is_kept(folder, data, tmp_path, capsys):
    stock, imported = stock_file(folder, tmp_path / "stock.pt"), tmp_path / "imported"
    command = ["import", "fairseq", "--checkpoint", stock, "--dictionaries", data, "--output", imported]
    codes = shutil.copyfile(data / "text/codes.bpe", tmp_path / "codes")
    command += ["--text", codes, "--source-lang", "en", "--target-lang", "de"]
    assert main([*map(str, command), "--lowercase", "--no-dash-splits"]) == 0
    assert capsys.readouterr().err == (
        "no pipeline.json: text is treated as the dictionary suggests: Moses' tokeniser, no dash splits, escapes, "
        "lowercased, punctuation normalised (--tokenizer, --lowercase, --normalise-punctuation, --dash-splits, "
        "--escape and their --no- forms change it)\n"
    )
    kept = json.loads((imported / "text/pipeline.json").read_text())
    own = json.loads((folder / "text/pipeline.json").read_text())
    assert kept == {**own, "lowercase": True, "dash_splits": False, "versions": {}}


def test_mistakes_leave_nothing_behind(folder, data, tmp_path, refused):
    stock, imported = stock_file(folder, tmp_path / "stock.pt"), tmp_path / "imported"
    there = sorted(tmp_path.iterdir())

    def told(message: str, **changes: object) -> None:
        options = {"checkpoint": stock, "dictionaries": data, "output": imported, **changes}
        words = (part for name, value in options.items() for part in (f"--{name}", value))
        refused(message, "import", "fairseq", *words)

    none = tmp_path / "none.pt"
    told(f"rskip import fairseq: error: no model {none}: expected a checkpoint", checkpoint=none)
    told(f"--text is {tmp_path}/none, which holds no text pipeline", text=tmp_path / "none")
    (data / "dict.de.txt").write_text("a 1\n")
    told("the dictionaries belong to another model: the target one has ")
    (data / "dict.de.txt").unlink()
    told("no dict.de.txt")
    shutil.rmtree(data / "text")
    told("no text pipeline")
    assert sorted(tmp_path.iterdir()) == there
