"""Files that torch.load refuses in its many ways."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest
import torch

from rskip.files.torch_file import read_torch_file, weights_difference


def of_another_storage() -> bytes:
    """A file of PyTorch's old format whose tensor is said to be in a storage that is not there."""
    memory = io.BytesIO()
    torch.save({"a": torch.zeros(3)}, memory, _use_new_zipfile_serialization=False)
    content = bytearray(memory.getvalue())
    content[content.index(b"FloatStorage") + 20] = ord("x")  # the first character of the storage's name
    return bytes(content)


@pytest.mark.parametrize("rest", [b"", b"his is not a model"])
def test_text_that_begins_with_any_character(rest: bytes, tmp_path: Path) -> None:
    for first in range(128):
        refused(bytes([first]) + rest, tmp_path)


def test_a_storage_that_is_not_there(tmp_path: Path) -> None:
    refused(of_another_storage(), tmp_path)


def refused(content: bytes, folder: Path) -> None:
    """The file is refused in one line that names it."""
    path = folder / "model.pt"
    path.write_bytes(content)
    with pytest.raises(ValueError) as error:
        read_torch_file(path, kind="model", advice="; move it away")
    expected = f"{path} can't be read: it is truncated, damaged, or not a model; move it away"
    assert str(error.value) == expected


def test_a_bit_that_has_changed_is_found_wherever_it_is(tmp_path: Path) -> None:
    """PyTorch itself looks at no sum: a changed weight loads, and a changed name is another one."""
    memory = io.BytesIO()
    torch.save({"model": {"weight": torch.arange(64.0), "bias": torch.ones(8)}, "number": 3}, memory)
    with zipfile.ZipFile(memory) as archive:
        names = [record.filename for record in archive.infolist()]
        places = [memory.getvalue().index(archive.read(name)) for name in names if "/data" in name]
    for place in places:
        content = bytearray(memory.getvalue())
        content[place + 5] ^= 4
        refused(bytes(content), tmp_path)
    path = tmp_path / "model.pt"
    path.write_bytes(memory.getvalue())
    assert [read_torch_file(path, kind="model", mmap=mmap)["number"] for mmap in (False, True)] == [3, 3]


def test_weights_are_floats_of_the_models_names_and_shapes() -> None:
    own = {"weight": torch.zeros(2, 3), "count": torch.tensor(1)}
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        assert weights_difference(own, {"weight": torch.zeros(2, 3, dtype=dtype), "count": torch.tensor(5)}) is None
    for dtype in (torch.bool, torch.int8, torch.int64, torch.complex64, torch.float8_e4m3fn, torch.float8_e5m2):
        given = {"weight": torch.zeros(2, 3, dtype=dtype), "count": torch.tensor(5)}
        assert weights_difference(own, given) == f"weight is {dtype}, expected floats"
    for changes, difference in (
        ({"weight": torch.zeros(3, 2)}, "weight has the shape (3, 2), expected (2, 3)"),
        ({"weight": torch.zeros(2, 3).to_sparse()}, "weight is not a dense tensor"),
        ({"weight": 3}, "weight is not a dense tensor"),
        ({"count": torch.tensor(1.0)}, "count is torch.float32, expected torch.int64"),
        ({"more": torch.zeros(1)}, "the file has more too"),
    ):
        assert weights_difference(own, {**own, **changes}) == difference
    assert weights_difference(own, {"weight": own["weight"]}) == "the file has no count"
