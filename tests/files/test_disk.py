"""Errors of writing that name the file."""

from __future__ import annotations

import errno
import os
import re
import shutil
from pathlib import Path

import pytest

from rskip.files.whole import DiskFull, disk_space, naming, require_space


def test_a_full_disk_and_a_place_that_can_not_be_written_get_their_advice(tmp_path: Path) -> None:
    def error_of(error: OSError, elsewhere: str | None = "go elsewhere") -> OSError:
        with pytest.raises(OSError) as raised, disk_space(tmp_path, advice="free some", elsewhere=elsewhere):
            raise error
        return raised.value

    for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        full = OSError(number, os.strerror(number), "a/file")
        assert str(error_of(full)) == "no space left for a/file: free some"
        assert str(error_of(OSError(number, os.strerror(number)))) == f"no space left for {tmp_path}: free some"
    detailed = DiskFull(errno.ENOSPC, "20 free", "a/file")
    assert str(error_of(detailed)) == "no space left for a/file (20 free): free some"
    for number in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST):
        refused = OSError(number, os.strerror(number), "a/file")
        assert str(error_of(refused)) == f"can't write a/file ({os.strerror(number)}): go elsewhere"
        assert error_of(refused, elsewhere=None) is refused
    for other in (OSError(errno.EIO, "broken", "a/file"), OSError(errno.EACCES, "no name"), OSError("in words")):
        assert error_of(other) is other


def test_space_is_required_before_a_file_is_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    require_space(tmp_path / "file", 1000)
    with pytest.raises(OSError, match=rf"1,001 bytes needed, 1,000 free: '{re.escape(str(tmp_path))}/file'$") as error:
        require_space(tmp_path / "file", 1001)
    assert error.value.errno == errno.ENOSPC


def test_the_file_and_the_consequence_are_named() -> None:
    for given, reason in ((OSError(errno.EROFS, "x"), os.strerror(errno.EROFS)), (OSError("in words"), "in words")):
        with pytest.raises(OSError) as error, naming(Path("a/file"), consequence="the training stops"):
            raise given
        assert (error.value.errno, error.value.filename) == (given.errno, "a/file")
        assert error.value.strerror == f"{reason}; the training stops"
