"""Upstream files: from a mirror, from the web, from the cache."""

import errno
from pathlib import Path
from typing import Any

import pytest

from rskip.checksum import sha256_file
from rskip.corpora.fetch import cache_folder, fetch

NAMES = ["train.en.gz", "train.de.gz", "val.en.gz", "val.de.gz", "test.en.gz", "test.de.gz"]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RSKIP_DATA", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_cache_folder(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_folder() == cache
    monkeypatch.delenv("RSKIP_DATA")
    monkeypatch.setenv("HOME", "/somewhere")
    assert cache_folder() == Path("/somewhere/.cache/rskip/data")


def test_mirror_folder_is_read_in_place(make_corpus: Any, mirror: Path, cache: Path) -> None:
    files = fetch(make_corpus(), mirror=str(mirror))
    assert list(files.values()) == [mirror / name for name in NAMES]
    assert not cache.exists()


def test_web_files_are_cached(make_corpus: Any, server: Any, cache: Path) -> None:
    corpus = make_corpus(url=server.url)
    files = fetch(corpus)
    assert list(files.values()) == [cache / "tiny" / name for name in NAMES]
    assert [name for name, _ in server.requests] == NAMES
    fetch(corpus)
    assert len(server.requests) == len(NAMES)


def test_mirror_address(make_corpus: Any, server: Any, mirror: Path, cache: Path) -> None:
    fetch(make_corpus(), mirror=f"{server.url}/")
    assert (cache / "tiny/val.de.gz").read_bytes() == (mirror / "val.de.gz").read_bytes()
    (cache / "tiny/val.de.gz").unlink()
    fetch(make_corpus(), mirror=mirror.as_uri())
    assert (cache / "tiny/val.de.gz").read_bytes() == (mirror / "val.de.gz").read_bytes()


def test_damaged_cache_is_fetched_again(make_corpus: Any, server: Any, mirror: Path, cache: Path) -> None:
    corpus = make_corpus(url=server.url)
    fetch(corpus)
    (cache / "tiny/train.de.gz").write_bytes(b"damaged")
    fetch(corpus)
    assert server.requests[len(NAMES) :] == [("train.de.gz", None)]
    assert (cache / "tiny/train.de.gz").read_bytes() == (mirror / "train.de.gz").read_bytes()


def test_full_disk_of_the_cache(
    make_corpus: Any, server: Any, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object, **kwargs: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("rskip.corpora.fetch.download", full)
    with pytest.raises(
        OSError, match=rf"no space left for {cache}/tiny: free some, or name another .* RSKIP_DATA"
    ):
        fetch(make_corpus(url=server.url))


def test_file_missing_in_the_mirror(make_corpus: Any, mirror: Path) -> None:
    corpus = make_corpus(url="https://upstream.example/raw")
    (mirror / "val.de.gz").unlink()
    message = (
        r"val\.de\.gz is not in the mirror .*mirror: get it from https://upstream\.example/raw/val\.de\.gz"
    )
    with pytest.raises(FileNotFoundError, match=message):
        fetch(corpus, mirror=str(mirror))


def test_no_mirror_there(make_corpus: Any, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no mirror folder .*nowhere: expected one that holds train"):
        fetch(make_corpus(), mirror=str(tmp_path / "nowhere"))
    with pytest.raises(ValueError, match=r"--mirror s3://bucket: expected a folder, or an address"):
        fetch(make_corpus(), mirror="s3://bucket")


def test_wrong_checksum_in_the_mirror_leaves_the_users_file(make_corpus: Any, mirror: Path) -> None:
    corpus = make_corpus()
    expected = sha256_file(mirror / "val.de.gz")
    (mirror / "val.de.gz").write_bytes(b"other")
    got = sha256_file(mirror / "val.de.gz")
    message = rf"val\.de\.gz: wrong checksum: expected sha256 {expected}, got {got}; the file was left"
    with pytest.raises(ValueError, match=message):
        fetch(corpus, mirror=str(mirror))
    assert (mirror / "val.de.gz").read_bytes() == b"other"
