"""Files in the cache: which are right."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from rskip.files.cache import FetchedFile, cache_folder, downloaded, expanded_path, verified

CONTENT = b"what came"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file that came from the web; nobody knew its checksum."""
    path = tmp_path / "train.gz"
    path.write_bytes(CONTENT)
    assert downloaded(path) == FetchedFile(path, 9, SHA256)
    return path


def test_the_folder_and_paths_in_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RSKIP_DATA", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("RSKIP_DATA")
    monkeypatch.setenv("HOME", "/somewhere")
    assert cache_folder() == Path("/somewhere/.cache/rskip/data")
    with pytest.raises(ValueError, match=r"^the mirror ~nobody-here/x: this user has no known home folder: "):
        expanded_path("~nobody-here/x", "the mirror")


def test_a_file_is_as_it_was_downloaded_or_as_it_is_known(file: Path, tmp_path: Path) -> None:
    assert file.with_name("train.gz.sha256").read_text() == f"{SHA256}\n"
    assert verified(file) == verified(file, size=9, sha256=SHA256) == FetchedFile(file, 9, SHA256)
    assert verified(tmp_path / "missing") is None
    assert verified(file, size=8) is None
    assert verified(file, sha256="0" * 64) is None


@pytest.mark.parametrize("known", [{}, {"sha256": SHA256}])
@pytest.mark.parametrize("content", [b"\0" * 9, b"cut"])
def test_a_damaged_file_is_none(file: Path, known: dict[str, str], content: bytes) -> None:
    file.write_bytes(content)
    assert verified(file, **known) is None


def test_a_damaged_checksum_is_another_and_a_file_that_was_put_there_by_hand_has_none(file: Path) -> None:
    file.with_name("train.gz.sha256").write_bytes(b"\xff")
    assert verified(file) is None
    file.with_name("train.gz.sha256").unlink()
    assert verified(file) == FetchedFile(file, 9, SHA256)
    assert [path.name for path in file.parent.iterdir()] == ["train.gz"]
