"""Extracting the features of a folder of images: resumed, and without images that can't be read."""

from __future__ import annotations

import shutil
import time

import numpy as np
import pytest
from PIL import Image

from rskip.captioning.extraction import extract_features
from rskip.captioning.features import FeatureStore
from rskip.captioning.options import ImageBatchSettings
from rskip.files.images import find_images
from rskip.settings.errors import SettingError
from tests.killing import killed_until_done


def named(folder):
    return [(path.relative_to(folder).as_posix(), path) for path in find_images([folder])]


@pytest.fixture
def extract(mean_colours):
    def extract(folder, store, **settings):
        return extract_features(named(folder), mean_colours(), store, settings=ImageBatchSettings(**settings))

    return extract


def test_the_store_has_the_folders_pictures_in_order(mean_colours, pictures, tmp_path):
    backbone, settings = mean_colours(), ImageBatchSettings(batch_size=2)
    result = extract_features(named(pictures), backbone, tmp_path / "store", settings=settings)
    assert (result.done, result.kept, result.failed, result.total) == (5, 0, {}, 5)
    assert backbone.batches == [2, 2, 1]
    store = FeatureStore(tmp_path / "store")
    assert store.names == ["a.png", "b.jpg", "c.JPG", "d.webp", "more/a.png"]
    (expected,) = backbone.features([Image.open(pictures / "more" / "a.png")])
    assert np.array_equal(store["more/a.png"].values, expected.values)


def test_bad_pictures_are_left_out_and_repaired_ones_added(extract, pictures, tmp_path):
    good = (pictures / "b.jpg").read_bytes()
    (pictures / "b.jpg").write_bytes(good[: len(good) // 2])
    (pictures / "aa.gif").write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 64 64\n%%EndComments\n")
    result = extract(pictures, tmp_path / "store", batch_size=1)
    assert list(result.failed) == ["aa.gif", "b.jpg"] and result.done == 4
    assert "aa.gif: not an image" in result.failed["aa.gif"] and "truncated" in result.failed["b.jpg"]
    (pictures / "b.jpg").write_bytes(good)
    again = extract(pictures, tmp_path / "store")
    assert (again.done, again.kept, list(again.failed)) == (1, 4, ["aa.gif"])
    assert FeatureStore(tmp_path / "store").names == ["a.png", "c.JPG", "d.webp", "more/a.png", "b.jpg"]


def test_a_picture_whose_features_are_not_finite_is_left_out(mean_colours, pictures, tmp_path):
    class Overflowing(mean_colours):
        def compute(self, inputs):
            found = super().compute(inputs)
            found[0].values[0, 0] = np.inf
            return found

    settings = ImageBatchSettings(batch_size=4)
    result = extract_features(named(pictures), Overflowing(), tmp_path / "store", settings=settings)
    assert result.done == 3 and list(result.failed) == ["a.png", "more/a.png"]
    assert result.failed["a.png"] == "a.png has features that are not finite numbers of float16"
    assert FeatureStore(tmp_path / "store").names == ["b.jpg", "c.JPG", "d.webp"]


def test_killed_at_any_moment_and_repeated_it_leaves_the_same_bytes(mean_colours, pictures, tmp_path, monkeypatch):
    images = [(f"{number}.png", pictures / "a.png") for number in range(40)]

    class Slow(mean_colours):
        def compute(self, inputs):
            time.sleep(0.002)
            return super().compute(inputs)

    def extract(store):
        extract_features(images, Slow(), store, settings=ImageBatchSettings(batch_size=2))

    monkeypatch.setattr("rskip.captioning.features.SAVE_SECONDS", 0)
    extract(tmp_path / "whole")
    kills = killed_until_done(lambda: extract(tmp_path / "store"), seed=1, longest=0.02)
    assert kills > 2
    for name in ("features.bin", "features.json"):
        assert (tmp_path / "store" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_what_makes_no_sense_is_refused(mean_colours, extract, pictures, tmp_path):
    extract(pictures, tmp_path / "store")
    shutil.copy(pictures / "b.jpg", pictures / "c.JPG")
    with pytest.raises(ValueError, match=r"c\.JPG has changed since .*store was made"):
        extract(pictures, tmp_path / "store")
    with pytest.raises(ValueError, match="none of 1 images can be read: .*notes: not an image"):
        (tmp_path / "notes").write_text("x")
        extract_features([("notes", tmp_path / "notes")], mean_colours(), tmp_path / "other")
    with pytest.raises(SettingError, match="batch_size"):
        ImageBatchSettings(batch_size=0)
