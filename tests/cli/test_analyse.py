"""`rskip analyse` as a user meets it."""

from __future__ import annotations

import pytest
import torch

from rskip.analysis.measurement import read_measurement
from rskip.analysis.registry import ANALYSES
from rskip.cli.main import main

SAS, RESNET = "transformer_tiny_sas.multi30k.en-de", "preact_resnet20_2rskip_ln.cifar10"


def test_tables(few_images, few_pairs, capsys):
    few = ["--examples", "3"]
    assert main(["analyse", "gradients", "1xskip", "2rskip+ln", "--depth", "8", "14", *few]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "gradients, 3 examples of cifar10 train, seed 1, BatchNorm: batch"
    assert printed[2].split() == [
        "model", "depth", "stage", "blocks", "gradient", "first", "gradient", "last", "gradient", "first/last"
    ]  # fmt: skip
    assert len(printed) == 15
    model, depth, stage, blocks, first, last, ratio = printed[7].split()
    assert (model, depth, stage, blocks) == ("1xskip", "14", "layer2", "3-4")
    assert float(first) / float(last) == pytest.approx(float(ratio), rel=0.02)

    assert main(["analyse", "gates", SAS, "--data", str(few_pairs), *few, "--split", "valid"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[2].split() == ["model", "depth", "block", "number", "alpha", "beta", "gamma"]
    assert printed[3].split()[:4] == [SAS, "4", "encoder.layers.0.self_attn", "1"] and len(printed) == 23


@pytest.mark.parametrize("analysis", [name for name, each in ANALYSES.items() if not each.streams])
def test_files(few_images, analysis, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    pictures = [analysis, *(f"{analysis}_{kind}" for kind in ANALYSES[analysis].charts[1:])]
    folder = tmp_path / "new" / "figures"
    assert main(["analyse", analysis, "sas", "--depth", "8", "--examples", "2", "--output", str(folder)]) == 0
    names = [f"{analysis}.json", f"{analysis}.csv", *(f"{name}.svg" for name in pictures)]
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)
    assert capsys.readouterr().out.endswith("".join(f"{folder / name}: written\n" for name in names))
    measurement = read_measurement(folder / f"{analysis}.json")
    assert measurement.to_csv() == (folder / f"{analysis}.csv").read_text()
    assert str(tmp_path) not in (folder / f"{analysis}.json").read_text()


def test_without_matplotlib_there_are_no_pictures(few_images, tmp_path, monkeypatch):
    monkeypatch.setattr("rskip.cli.analyse.find_spec", lambda name: None)
    assert main(["analyse", "signals", "1xskip", "--depth", "8", "--examples", "2", "--output", str(tmp_path)]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["signals.csv", "signals.json"]


def test_mistakes_are_one_line(few_images, few_pairs, root, tmp_path, monkeypatch, refused):
    caption = root / "checkpoints/flickr8k/sas"
    (tmp_path / "file").touch()
    torch.save({"a": 1}, tmp_path / "other.pt")
    (tmp_path / "empty").mkdir()
    data = ["--data", str(few_pairs)]
    for arguments, parts in (
        (["gates", "2rskip+ln", "--examples", "2", "--depth", "8"], ["2rskip+ln has no gates", "sas or highway"]),
        (["signals", "1xskip", "--examples", "31"], ["--examples is 31", "at most 30", "cifar10's train images"]),
        (["signals", SAS, *data, "--examples", "5"], ["--examples is 5", "at most 4", "train pairs"]),
        (["signals", "1xskip", "--depth", "21"], ["--depth is 21", "20 and 26"]),
        (["signals", RESNET, "--depth", "20"], ["--depth is given", "leave it out"]),
        (["signals", SAS, *data, "--split", "test", "--examples", "2"], ["--split is 'test'", "train, valid"]),
        (["signals", SAS], ["--data is missing", "rskip prepare"]),
        (["signals", SAS, "--data", str(tmp_path / "none")], ["none does not exist", "rskip prepare"]),
        (["signals", "transformer_tiny_2rskip_ln.multi30k.en-fr", *data], ["whose en dictionary is not the model's"]),
        (["signals", "1xskip", "--task", "captions"], ["--task is 'captions'", "captioning"]),
        (["signals", "captioning_transformer_tiny_sas.flickr8k"], ["can't be analysed"]),
        (["signals", str(caption)], ["flickr8k/sas is not a model that can be analysed"]),
        (["signals", RESNET, "--task", "translation"], ["--task is 'translation'", "is a model for vision"]),
        (["signals", str(tmp_path / "other.pt")], ["can be analysed; to see", "give --task translation or"]),
        (["signals", str(tmp_path / "empty"), "--task", "vision"], ["holds no model"]),
        (["signals", "b2t", "--task", "translation", "--depth", "1", *data], ["b2t passes on more", "analyse streams"]),
        (["streams", "1xskip", "--depth", "8", "--examples", "2"], ["1xskip passes on only x", "such as hyper or mhc"]),
        (["depth", "1xskip+ln", "--depth", "8", "--examples", "2"], ["xskip is not a weighted sum", "as_mixing"]),
        (["signals", "1xskip", "--depth", "8", "--output", str(tmp_path / "file")], ["file: File exists"]),
        (["signals", "1xskip", "--batch-norm", "train"], ["--batch-norm is 'train'", "batch"]),
    ):
        line = refused("rskip analyse: error: ", "analyse", *arguments)
        assert all(part in line for part in parts), line
