"""What is known of files in the cache."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from rskip.files import cache
from rskip.files.cache import FetchedFile, cache_folder, expanded_path, keep_metadata, verified

CONTENT = b"what came"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file that came from the web, with its metadata."""
    path = tmp_path / "train.gz"
    path.write_bytes(CONTENT)
    keep_metadata(path, url="https://x/train.gz")
    return path


@pytest.fixture
def summed(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that were read to be summed; files of any size count as large."""
    paths: list[Path] = []
    sha256_file = cache.sha256_file
    monkeypatch.setattr(cache, "ALWAYS_SUMMED", 0)
    monkeypatch.setattr(cache, "sha256_file", lambda path: paths.append(path) or sha256_file(path))
    return paths


def check(path: Path, **known: Any) -> FetchedFile | None:
    return verified(path, url="https://x/train.gz", **known)


def test_the_folder_and_paths_in_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RSKIP_DATA", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("RSKIP_DATA")
    monkeypatch.setenv("HOME", "/somewhere")
    assert cache_folder() == Path("/somewhere/.cache/rskip/data")
    with pytest.raises(ValueError, match=r"^the mirror ~nobody-here/x: this user has no known home folder: "):
        expanded_path("~nobody-here/x", "the mirror")


def test_what_is_kept_of_a_file(file: Path) -> None:
    kept = json.loads(file.with_name("train.gz.json").read_text())
    assert kept.pop("date").endswith("+00:00")
    modified = file.stat().st_mtime_ns
    expected = {"url": "https://x/train.gz", "version": "", "size": 9, "sha256": SHA256, "modified": modified}
    assert kept == expected
    assert check(file) == check(file, size=9, sha256=SHA256) == FetchedFile(file, 9, SHA256)


@pytest.mark.parametrize("known", [{}, {"sha256": SHA256}])
@pytest.mark.parametrize("content", [b"\0" * 9, b"cut"])
def test_a_damaged_file_is_none(file: Path, known: dict[str, str], content: bytes) -> None:
    status = file.stat()
    file.write_bytes(content)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))  # as a failing disk does it
    assert check(file, **known) is None


def test_another_file_than_the_one_that_is_meant_is_none(file: Path, tmp_path: Path) -> None:
    assert check(tmp_path / "missing") is None
    assert check(file, size=8) is None
    assert check(file, sha256="0" * 64) is None
    assert check(file, version="2") is None


def test_a_large_file_is_summed_again_only_when_it_was_touched(file: Path, summed: list[Path]) -> None:
    assert check(file) == check(file, sha256=SHA256)
    assert summed == []
    os.utime(file, ns=(0, 123_456_789_000))
    assert check(file) == check(file)
    assert summed == [file]
    file.write_bytes(b"\0" * 9)
    assert check(file) is None


def test_a_file_that_was_put_there_by_hand_gets_its_metadata(file: Path, summed: list[Path]) -> None:
    """And so does one whose metadata is damaged."""
    metadata = file.with_name("train.gz.json")
    for content in (None, "{", "[]", "{}"):
        metadata.unlink(missing_ok=True)
        if content is not None:
            metadata.write_text(content)
        summed.clear()
        assert check(file) == check(file) == FetchedFile(file, 9, SHA256)
        assert summed == [file]
    metadata.unlink()
    assert check(file, version="packed, 3 bytes") is None


def test_a_cache_that_may_only_be_read_is_used(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*args: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(cache, "atomic_file", refused)
    file.with_name("train.gz.json").unlink()
    assert check(file, sha256=SHA256) == FetchedFile(file, 9, SHA256)
