"""Files that torch.load refuses in its many ways."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import torch

from rskip.files.torch_file import read_torch_file


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
    expected = f"{path} can't be read: it is cut off, damaged, or no model; move it away"
    assert str(error.value) == expected
