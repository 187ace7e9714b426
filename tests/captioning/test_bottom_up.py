"""Published features of regions, in the forms in which they are published."""

from __future__ import annotations

import base64
import io
import re
import zipfile

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


def assert_holds(store, number):
    found, (values, _) = store[f"COCO_val2014_{number:012d}.jpg"], regions(number)
    assert found.grid is None and np.array_equal(found.values, values.astype(np.float16))


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
        assert any("doesn't end in the number of an image" in text for text in result.failed.values())
        for number in (12, 391895):
            assert_holds(FeatureStore(tmp_path / f"{folder}-store"), number)


def test_what_holds_no_such_features_is_refused(tmp_path):
    (tmp_path / "words.tsv").write_text("some words\n" * 3)
    (tmp_path / "empty.tsv").write_text("")
    (tmp_path / "folder").mkdir()
    for name, words in (("words.tsv", "1 fields, expected 6"), ("empty.tsv", "it is empty"), ("folder", "it is empty")):
        with pytest.raises(ValueError, match=f"{name}: not bottom-up features: .*{words}"):
            store_bottom_up(tmp_path / name, tmp_path / "store")
    with pytest.raises(FileNotFoundError, match="no such file or folder"):
        store_bottom_up(tmp_path / "none", tmp_path / "store")


def npz(*, compression=zipfile.ZIP_STORED, **named):
    """A .npz file of arrays, or of bytes that imitate an array."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, array in named.items():
            member = io.BytesIO()
            member.write(array) if isinstance(array, bytes) else np.save(member, array)
            archive.writestr(f"{name}.npy", member.getvalue())
    return file.getvalue()


def header(shape, dtype="<f4"):
    """The beginning of a .npy file."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": dtype, "fortran_order": False, "shape": shape})
    return file.getvalue()


VALUES = np.arange(72, dtype=np.float32).reshape(9, 8)
NAN = np.where(VALUES == 30, np.nan, VALUES)
UNREADABLE = "no array of numbers can be read"
ODD = {
    "no dimension": (npz(feat=np.float32(3)), r"features of shape \(\)"),
    "no regions": (npz(feat=VALUES[:0]), r"features of shape \(0, 8\)"),
    "text": (npz(feat=VALUES.astype("U3")), "expected real numbers"),
    "pickle": (npz(feat=header((1,), "|O") + b"cos\nsystem\n"), "allow_pickle"),
    "giant shape": (npz(feat=header((1 << 40, 2048)) + bytes(64)), UNREADABLE),
    "giant member": (npz(feat=bytes(1 << 25), compression=zipfile.ZIP_DEFLATED), "33,554,432 bytes, expected at most"),
    "an array": (header((9, 8)) + VALUES.tobytes(), UNREADABLE),
    "a bit": (npz(feat=VALUES).replace(VALUES.tobytes(), NAN[::-1].tobytes()[: VALUES.nbytes]), "Bad CRC-32"),
    "not a number": (npz(feat=NAN), "features that are not finite numbers of float16$"),
    "too large": (npz(feat=VALUES * 1e4), "not finite numbers of float16; float32 may hold them"),
    "other dim": (npz(feat=VALUES[:, :7]), "features of 7 numbers, expected 8"),
}  # fmt: skip


@pytest.mark.parametrize("odd", ODD)
def test_an_odd_npz_is_left_out_and_the_others_are_taken(odd, tmp_path):
    content, words = ODD[odd]
    folder, inputs = tmp_path / "store", tmp_path / "npz"
    inputs.mkdir()
    (inputs / "1.npz").write_bytes(content)
    for number, order in ((2, "C"), (3, "F")):
        np.savez_compressed(inputs / f"{number}.npz", feat=np.array(VALUES + number, order=order))
    result = store_bottom_up(inputs, folder)
    assert result.done == 2 and list(result.failed) == [str(inputs / "1.npz")]
    text = result.failed[str(inputs / "1.npz")]
    assert re.search(words, text) and text.startswith(f"{inputs}/1.npz: ") and "\n" not in text
    store = FeatureStore(folder)
    assert store.names == ["2", "3"]
    for name in store.names:
        assert np.array_equal(store[name].values, VALUES + int(name))
