"""The feature store: everything that was written can be read, even if writing was interrupted."""

from __future__ import annotations

import json
import os
import pickle
import re

import numpy as np
import pytest

from rskip.captioning.features import Features, FeatureStore, FeatureWriter
from rskip.settings.errors import SettingError

DESCRIPTION = {"backbone": "drawn", "dim": 6, "dtype": "float16"}
REGIONS = {**DESCRIPTION, "boxes": True}


def grid(seed, rows=2, columns=3, dim=6):
    values = np.random.default_rng(seed).normal(size=(rows * columns, dim)).astype(np.float16)
    return Features(values, (rows, columns))


def regions(seed, count):
    generator = np.random.default_rng(seed)
    boxes = generator.uniform(0, 300, size=(count, 4)).astype(np.float32)
    return Features(generator.normal(size=(count, 6)).astype(np.float16), None, boxes)


def write(path, names, description=DESCRIPTION, make=grid, whole=True):
    with FeatureWriter(path, description) as writer:
        missing = [name for name in names if name not in writer.sums]
        for name in missing:
            writer.add([(name, f"sum of {name}", make(ord(name[0])))])
        if whole:
            writer.finish()
    return missing


def assert_same(found, expected):
    assert found.grid == expected.grid and np.array_equal(found.values, expected.values)
    assert (found.boxes is None) == (expected.boxes is None)
    assert found.boxes is None or np.array_equal(found.boxes, expected.boxes)


def test_pictures_are_read_as_they_were_written_in_their_order(tmp_path):
    expected = {"b.jpg": grid(1), "ä/a.png": grid(2, rows=1), "c.jpg": grid(3, rows=4, columns=4)}
    with FeatureWriter(tmp_path / "store", DESCRIPTION) as writer:
        writer.add((name, f"sum of {name}", features) for name, features in expected.items())
        writer.finish()
    store = FeatureStore(tmp_path / "store")
    for each in (store, pickle.loads(pickle.dumps(store))):
        assert each.names == list(expected) and len(each) == 3 and each.dim == 6
        assert each.description == {"format": 1, **DESCRIPTION}
        assert each.images["b.jpg"].sha256 == "sum of b.jpg"
        for name, features in expected.items():
            assert name in each
            assert_same(each[name], features)
    assert "d.jpg" not in store and 3 not in store
    with pytest.raises(ValueError, match=r"no features of d\.jpg"):
        store["d.jpg"]
    store["b.jpg"].values[:] = 0  # a copy
    assert_same(store["b.jpg"], expected["b.jpg"])


def test_regions_have_boxes_and_any_number(tmp_path):
    expected = {name: regions(number, number + 1) for number, name in enumerate("abc")}
    with FeatureWriter(tmp_path, REGIONS) as writer:
        writer.add((name, "", features) for name, features in expected.items())
        writer.finish()
    store = FeatureStore(tmp_path)
    for name, features in expected.items():
        assert_same(store[name], features)


@pytest.mark.parametrize(("description", "make"), [(DESCRIPTION, grid), (REGIONS, lambda seed: regions(seed, 3))])
def test_whatever_a_killed_process_left_is_gone_on_with(tmp_path, description, make):
    write(tmp_path / "whole", "abcd", description, make)
    whole = {path.name: path.read_bytes() for path in (tmp_path / "whole").iterdir() if path.name != "lock"}
    ends = {name: range(0, len(whole[name]) + 1, 1 + len(whole[name]) // 5) for name in whole}
    for name, sizes in ends.items():
        for size in sizes:
            store = tmp_path / f"{name}-{size}"
            write(store, "abcd", description, make, whole=False)
            file = store / (f"{name}.partial" if name.endswith("jsonl") else name)
            file.write_bytes(whole[name][:size])
            with pytest.raises(ValueError, match="is unfinished: repeat the command"):
                FeatureStore(store)
            missing = write(store, "abcd", description, make)
            assert missing or size == len(whole[name])
            assert {path.name: path.read_bytes() for path in store.iterdir() if path.name != "lock"} == whole


def test_pictures_are_added_to_a_whole_store_which_can_be_read_meanwhile(tmp_path):
    write(tmp_path, "ab")
    with FeatureWriter(tmp_path, DESCRIPTION) as writer:
        assert list(writer.sums) == ["a", "b"]
        writer.add([("c", "", grid(9))])
        assert FeatureStore(tmp_path).names == ["a", "b"]
        writer.finish()
    assert FeatureStore(tmp_path).names == ["a", "b", "c"]
    assert_same(FeatureStore(tmp_path)["c"], grid(9))


def test_what_can_not_be_written_is_refused_and_nothing_of_it_stays(tmp_path):
    write(tmp_path / "store", "ab")
    large, endless = grid(1), grid(1)
    large = Features(large.values.astype(np.float32) * 0 + 70_000, large.grid)
    endless.values[0, 0] = np.nan
    with FeatureWriter(tmp_path / "store", DESCRIPTION) as writer:
        for features, words in (
            (grid(1, dim=5), "y has features of 5 numbers, expected 6"),
            (large, "not finite numbers of float16; float32 may hold them"),
            (endless, "not finite numbers of float16$"),
        ):
            (problem,) = writer.add([("y", "", features)]).values()
            assert re.search(words, problem)
        with pytest.raises(ValueError, match="two images have the name a"):
            writer.add([("a", "", grid(1))])
        with pytest.raises(ValueError, match="locked by another process"):
            FeatureWriter(tmp_path / "store", DESCRIPTION)
        writer.add([("x", "", grid(5))])
        writer.finish()
    assert_same(FeatureStore(tmp_path / "store")["x"], grid(5))
    with pytest.raises(ValueError, match=r"made with other settings \(backbone: drawn, now other\)"):
        FeatureWriter(tmp_path / "store", {**DESCRIPTION, "backbone": "other"})
    with pytest.raises(ValueError, match="holds files other than features"):
        FeatureWriter(tmp_path, DESCRIPTION)


def test_what_is_no_whole_store_is_refused(tmp_path):
    for folder in (tmp_path / "none", tmp_path):
        with pytest.raises(FileNotFoundError, match="make them with rskip caption extract"):
            FeatureStore(folder)
    store = tmp_path / "store"
    write(store, "ab")
    index, features = (store / name for name in ("pictures.jsonl", "features.bin"))
    features.write_bytes(features.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"features\.bin is damaged"):
        FeatureStore(store)
    description = json.dumps({"format": 1, **DESCRIPTION})
    entry = {"name": "a", "sha256": "", "start": 0, "count": 6, "grid": [2, 3]}
    whole = f"{description}\n{json.dumps(entry)}\n"
    damaged = {
        f'{{"format": 1}}\n{json.dumps(entry)}\n': "line 1: backbone is missing",
        f"{description}\n{{}}\n": "line 2: name is missing",
        whole.replace('t": 6', 't": 7'): "is damaged at a",
        whole + json.dumps({**entry, "name": "b"}) + "\n": "is damaged at b",
        whole + "[" * 9000: "line 3",
    }
    for text, words in damaged.items():
        index.write_text(text)
        with pytest.raises(ValueError, match=rf"pictures\.jsonl.*{words}"):
            FeatureStore(store)


def test_a_damaged_line_before_intact_ones_is_an_error(tmp_path):
    """The damaged end of an unfinished store is made again."""
    store = tmp_path / "store"
    write(store, "abc", whole=False)
    partial, features = store / "pictures.jsonl.partial", (store / "features.bin").read_bytes()
    lines = partial.read_text().splitlines(keepends=True)
    partial.write_text("".join([*lines[:3], '{"start": "6"}\n', "\0" * 40]))
    assert write(store, "abc") == ["c"]
    assert FeatureStore(store).names == ["a", "b", "c"]
    partial.write_text("".join([*lines[:2], '{"start": "6"}\n', *lines[3:]]))
    with pytest.raises(SettingError, match="partial, line 3: name is missing"):
        write(store, "abcd")
    assert (store / "features.bin").read_bytes() == features


def test_a_store_that_another_process_truncates_is_told(tmp_path):
    write(tmp_path / "store", ["a.jpg", "b.jpg"])
    store = FeatureStore(tmp_path / "store")
    os.truncate(tmp_path / "store/features.bin", 30)
    with pytest.raises(ValueError, match=r"features\.bin was changed"):
        store["b.jpg"]
