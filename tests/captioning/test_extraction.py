"""A folder of pictures into a store: resumed, with the bad ones left out."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch

from rskip.captioning.backbones import Backbone
from rskip.captioning.extraction import extract_features
from rskip.captioning.features import Features, FeatureStore
from rskip.captioning.pictures import find_pictures
from rskip.captioning.settings import ExtractionSettings
from rskip.settings.errors import SettingError


class MeanColours(Backbone):
    """Quarters of the picture and their mean colours."""

    def __init__(self):
        description = {"backbone": "mean colours", "dim": 3, "dtype": "float16"}
        super().__init__("mean colours", torch.nn.Identity(), description, torch.device("cpu"))
        self.batches = []

    def prepare(self, image):
        return torch.from_numpy(np.array(image.resize((2, 2)))).float()

    def compute(self, inputs):
        self.batches.append(len(inputs))
        return [Features(self._values(each.view(4, 3)), (2, 2)) for each in inputs]


def named(folder):
    return [(path.relative_to(folder).as_posix(), path) for path in find_pictures([folder])]


def extract(folder, store, **settings):
    return extract_features(named(folder), MeanColours(), store, settings=ExtractionSettings(**settings))


def test_the_store_has_the_folders_pictures_in_order(pictures, tmp_path):
    backbone, done = MeanColours(), []
    result = extract_features(
        named(pictures),
        backbone,
        tmp_path / "store",
        settings=ExtractionSettings(batch_size=2),
        report=lambda each: done.append(each.done),
    )
    assert (result.done, result.kept, result.failed, result.total) == (5, 0, {}, 5)
    assert backbone.batches == [2, 2, 1] and done == [2, 4, 5]
    store = FeatureStore(tmp_path / "store")
    assert store.names == ["a.png", "b.jpg", "c.JPG", "d.webp", "more/a.png"]
    from PIL import Image

    (expected,) = backbone.features([Image.open(pictures / "more" / "a.png")])
    assert np.array_equal(store["more/a.png"].values, expected.values)


def test_bad_pictures_are_left_out_and_repaired_ones_added(pictures, tmp_path):
    good = (pictures / "b.jpg").read_bytes()
    (pictures / "b.jpg").write_bytes(good[: len(good) // 2])
    (pictures / "aa.gif").write_text("no picture")
    result = extract(pictures, tmp_path / "store", batch_size=1)
    assert list(result.failed) == ["aa.gif", "b.jpg"] and result.done == 4
    assert "aa.gif: not a picture" in result.failed["aa.gif"] and "truncated" in result.failed["b.jpg"]
    (pictures / "b.jpg").write_bytes(good)
    again = extract(pictures, tmp_path / "store")
    assert (again.done, again.kept, list(again.failed)) == (1, 4, ["aa.gif"])
    assert FeatureStore(tmp_path / "store").names == ["a.png", "c.JPG", "d.webp", "more/a.png", "b.jpg"]


def test_an_interrupted_extraction_goes_on(pictures, tmp_path):
    backbone, store = MeanColours(), tmp_path / "store"

    def interrupt(result):
        if result.done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        extract_features(named(pictures), backbone, store, settings=ExtractionSettings(batch_size=2), report=interrupt)
    with pytest.raises(ValueError, match="is unfinished"):
        FeatureStore(store)
    result = extract(pictures, store)
    assert (result.done, result.kept) == (1, 4)
    extract(pictures, tmp_path / "whole")
    for name in ("features.bin", "pictures.jsonl"):
        assert (store / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_what_makes_no_sense_is_refused(pictures, tmp_path):
    extract(pictures, tmp_path / "store")
    shutil.copy(pictures / "b.jpg", pictures / "c.JPG")
    with pytest.raises(ValueError, match=r"c\.JPG is another picture than when .*store was made"):
        extract(pictures, tmp_path / "store")
    with pytest.raises(ValueError, match="none of 1 pictures can be read; .*notes: not a picture"):
        (tmp_path / "notes").write_text("x")
        extract_features([("notes", tmp_path / "notes")], MeanColours(), tmp_path / "other")
    with pytest.raises(SettingError, match="readers"):
        ExtractionSettings(readers=3)
