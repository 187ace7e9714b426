"""Reading rows of a file that may change."""

from __future__ import annotations

import os

import numpy as np
import pytest

from rskip.files.rows import FileRows

VALUES = np.arange(12, dtype="<i2").reshape(4, 3)


@pytest.fixture
def path(tmp_path):
    (tmp_path / "rows").write_bytes(b"head" + VALUES.tobytes())
    return tmp_path / "rows"


def test_slices_are_read(path):
    rows = FileRows(path, "<i2", (4, 3), offset=4)
    assert len(rows) == 4
    for part in (slice(1, 3), slice(None), slice(3, 9), slice(2, 2)):
        assert np.array_equal(rows[part], VALUES[part]) and rows[part].dtype == VALUES.dtype
    assert np.array_equal(FileRows(path, "u1", (4,))[:], np.frombuffer(b"head", "u1"))


@pytest.mark.parametrize("change", ["truncated", "overwritten", "replaced"])
def test_a_changed_file_is_told(path, change):
    rows = FileRows(path, "<i2", (4, 3), offset=4)
    other = b"head" + (VALUES + 1).tobytes()
    if change == "truncated":
        os.truncate(path, 9)
    elif change == "overwritten":
        path.write_bytes(other)
    else:
        path.with_name("new").write_bytes(other)
        path.with_name("new").replace(path)
    with pytest.raises(ValueError, match="rows was changed while it was being read"):
        rows[1:3]
