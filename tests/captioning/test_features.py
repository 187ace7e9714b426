"""The feature store: everything that was written can be read, even if writing was interrupted."""

from __future__ import annotations

import json
import os
import pickle
import re

import numpy as np
import pytest

from rskip.captioning import features as module
from rskip.captioning.features import Features, FeatureStore, FeatureWriter

DESCRIPTION = {"backbone": "drawn", "dim": 6, "dtype": "float16"}


def grid(seed, rows=2, columns=3, dim=6):
    values = np.random.default_rng(seed).normal(size=(rows * columns, dim)).astype(np.float16)
    return Features(values, (rows, columns))


def regions(seed, count=3):
    return Features(np.random.default_rng(seed).normal(size=(count, 6)).astype(np.float16), None)


def write(path, names, make=grid, whole=True):
    with FeatureWriter(path, DESCRIPTION) as writer:
        missing = [name for name in names if name not in writer.images]
        for name in missing:
            writer.add(name, f"sum of {name}", make(ord(name[0])))
        if whole:
            writer.finish()
    return missing


def contents(store):
    return {path.name: path.read_bytes() for path in store.iterdir() if not path.name.startswith(".")}


def assert_same(found, expected):
    assert found.grid == expected.grid and np.array_equal(found.values, expected.values)


@pytest.mark.parametrize("make", [grid, regions])
def test_pictures_are_read_as_they_were_written_in_their_order(tmp_path, make):
    expected = {"b.jpg": grid(1), "ä/a.png": grid(2, rows=1), "c.jpg": grid(3, rows=4, columns=4)}
    if make is regions:
        expected = {name: regions(number, number + 1) for number, name in enumerate(expected)}
    with FeatureWriter(tmp_path / "store", DESCRIPTION) as writer:
        for name, features in expected.items():
            assert not writer.add(name, f"sum of {name}", features)
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


@pytest.mark.parametrize("make", [grid, regions])
def test_whatever_a_killed_process_left_is_gone_on_with(tmp_path, make, monkeypatch):
    """The array may end anywhere after the images of the index, which is replaced as a whole."""
    monkeypatch.setattr(module, "SAVE_SECONDS", 0)
    write(tmp_path / "whole", "abcd", make)
    store = tmp_path / "store"
    write(store, "abc", make, whole=False)
    index = (store / "features.json").read_bytes()
    write(store, "abcd", make, whole=False)
    for torn in (0, 1, 9, 10_000):
        (store / "features.json").write_bytes(index)
        whole = (tmp_path / "whole/features.bin").read_bytes()
        (store / "features.bin").write_bytes(whole[: 3 * len(whole) // 4 + torn])
        with pytest.raises(ValueError, match="is unfinished: repeat the command"):
            FeatureStore(store)
        assert write(store, "abcd", make) == ["d"]
        assert contents(store) == contents(tmp_path / "whole")
    (store / "features.json").unlink()  # killed before the first minute
    assert write(store, "abcd", make) == ["a", "b", "c", "d"]
    assert contents(store) == contents(tmp_path / "whole")


def test_an_error_loses_nothing_and_a_whole_store_stays_readable(tmp_path):
    with pytest.raises(KeyboardInterrupt), FeatureWriter(tmp_path, DESCRIPTION) as writer:
        writer.add("a", "", grid(1))
        writer.add("b", "", grid(2))
        raise KeyboardInterrupt
    assert write(tmp_path, "abc") == ["c"]
    with FeatureWriter(tmp_path, DESCRIPTION) as writer:
        writer.add("d", "", grid(9))
        assert FeatureStore(tmp_path).names == ["a", "b", "c"]
        writer.finish()
    assert_same(FeatureStore(tmp_path)["d"], grid(9))


def test_a_store_is_read_while_a_writer_adds_nothing(tmp_path):
    write(tmp_path, ["a.jpg"])
    store = FeatureStore(tmp_path)
    assert write(tmp_path, ["a.jpg"]) == []
    assert_same(store["a.jpg"], grid(ord("a")))


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
            assert re.search(words, writer.add("y", "", features))
        with pytest.raises(ValueError, match="two images have the name a"):
            writer.add("a", "", grid(1))
        with pytest.raises(ValueError, match="locked by another process"):
            FeatureWriter(tmp_path / "store", DESCRIPTION).__enter__()
        writer.add("x", "", grid(5))
        writer.finish()
    store = FeatureStore(tmp_path / "store")
    assert store.names == ["a", "b", "x"]
    assert_same(store["x"], grid(5))
    with pytest.raises(ValueError, match=r"made with other settings \(backbone: drawn, now other\)"):
        FeatureWriter(tmp_path / "store", {**DESCRIPTION, "backbone": "other"}).__enter__()
    with pytest.raises(ValueError, match="holds files other than features"):
        FeatureWriter(tmp_path, DESCRIPTION)


def test_what_is_no_whole_store_is_refused(tmp_path):
    for folder in (tmp_path / "none", tmp_path):
        with pytest.raises(FileNotFoundError, match="make them with rskip caption extract"):
            FeatureStore(folder)
    store = tmp_path / "store"
    write(store, "ab")
    index, features = (store / name for name in ("features.json", "features.bin"))
    whole = json.loads(index.read_text())
    for changed, words in (
        ({"description": {"format": 1}}, "backbone is missing"),
        ({"images": {"a": ["", 7, [2, 3]]}}, "damaged at a"),
        ({"images": {"a": ["", 0, None]}}, "damaged"),
    ):
        index.write_text(json.dumps({**whole, **changed}))
        with pytest.raises(ValueError, match=rf"features\.json.*{words}"):
            FeatureStore(store)
    index.write_text("{")
    with pytest.raises(ValueError, match=r"features\.json is damaged .*move .* away"):
        FeatureStore(store)
    index.write_text(json.dumps(whole))
    opened = FeatureStore(store)
    os.truncate(features, 30)
    with pytest.raises(ValueError, match=r"features\.bin was changed"):
        opened["b"]
    with pytest.raises(ValueError, match=r"features\.bin is damaged"):
        FeatureStore(store)
