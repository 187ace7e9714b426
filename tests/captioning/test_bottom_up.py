"""Published features of regions, in the forms in which they are published."""

from __future__ import annotations

import base64

import numpy as np
import pytest

from rskip.captioning.bottom_up import store_bottom_up
from rskip.captioning.features import FeatureStore


def regions(number, count=36, dim=2048):
    generator = np.random.default_rng(number)
    values = generator.uniform(0, 20, size=(count, dim)).astype(np.float32)
    return values, generator.uniform(0, 600, size=(count, 4)).astype(np.float32)


def line(number, count=36, dim=2048):
    values, boxes = regions(number, count, dim)
    encoded = (base64.b64encode(each.tobytes()).decode() for each in (boxes, values))
    return "\t".join([str(number), "640", "480", str(count), *encoded]) + "\n"


def assert_holds(store, number, boxes=True):
    found, (values, expected) = store[f"COCO_val2014_{number:012d}.jpg"], regions(number)
    assert found.grid is None and np.array_equal(found.values, values.astype(np.float16))
    assert np.array_equal(found.boxes, expected) if boxes else found.boxes is None


def test_a_tsv_is_read_and_its_damaged_lines_are_told(tmp_path):
    whole = line(3)
    texts = [line(391895), "7\t640\n", line(5), line(391895), whole[:5000], whole.replace("\t36\t", "\t35\t", 1)]
    (tmp_path / "36.tsv").write_text("".join(text if text.endswith("\n") else f"{text}\n" for text in texts))
    result = store_bottom_up(tmp_path / "36.tsv", tmp_path / "store")
    assert (result.done, result.kept, result.total) == (2, 1, 6)
    lines = list(result.failed.values())
    for number, words, text in zip((2, 5, 6), ("2 fields, expected 6", "", "bytes for 35 boxes"), lines, strict=True):
        assert f"36.tsv, line {number}: " in text and words in text
    store = FeatureStore(tmp_path / "store")
    assert store.names == ["391895", "5"] and store.dim == 2048 and store.description["backbone"] == "bottom-up"
    assert_holds(store, 391895)
    with (tmp_path / "36.tsv").open("a") as file:
        file.write(line(9))
    assert store_bottom_up(tmp_path / "36.tsv", tmp_path / "store").done == 1
    assert_holds(FeatureStore(tmp_path / "store"), 9)


def test_folders_of_npz_are_read_in_both_forms(tmp_path):
    for folder, named in (("cocobu_att", {"feat": 0}), ("detectron", {"x": 0, "bbox": 1})):
        (tmp_path / folder).mkdir()
        for number in (12, 391895):
            arrays = {key: regions(number)[place] for key, place in named.items()}
            np.savez(tmp_path / folder / f"{number}.npz", **arrays, info={"objects": 3})
        (tmp_path / folder / "13.npz").write_bytes(b"PK\x03\x04")
        (tmp_path / folder / "cat.npz").write_bytes(b"")
        result = store_bottom_up(tmp_path / folder, tmp_path / f"{folder}-store")
        assert result.done == 2 and len(result.failed) == 2
        assert any("doesn't end in an image's number" in text for text in result.failed.values())
        for number in (12, 391895):
            assert_holds(FeatureStore(tmp_path / f"{folder}-store"), number, boxes="bbox" in named)


def test_what_holds_no_such_features_is_refused(tmp_path):
    (tmp_path / "words.tsv").write_text("some words\n" * 3)
    (tmp_path / "empty.tsv").write_text("")
    (tmp_path / "folder").mkdir()
    for name, words in (("words.tsv", "1 fields, expected 6"), ("empty.tsv", "it is empty"), ("folder", "it is empty")):
        with pytest.raises(ValueError, match=f"{name}: no bottom-up features: {words}"):
            store_bottom_up(tmp_path / name, tmp_path / "store")
    with pytest.raises(FileNotFoundError, match="no such file or folder"):
        store_bottom_up(tmp_path / "none", tmp_path / "store")
    (tmp_path / "mixed.tsv").write_text(line(1) + line(2, dim=1024))
    with pytest.raises(ValueError, match="2 has features of 1024 numbers, expected 2048"):
        store_bottom_up(tmp_path / "mixed.tsv", tmp_path / "store")
