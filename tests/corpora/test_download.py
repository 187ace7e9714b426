"""Downloads that fail, stop, go on, and are checked."""

from __future__ import annotations

import errno
import threading
from pathlib import Path
from typing import Any

import pytest

from rskip.checksum import sha256_file
from rskip.corpora.download import download

NAME = "train.en.gz"


@pytest.fixture
def fetch_train(server: Any, tmp_path: Path) -> Any:
    """Downloads one file from `server` without waiting between attempts; gives its path."""

    def fetch(attempts: int = 1, sha256: str | None = None) -> Path:
        target = tmp_path / "cache" / NAME
        right = sha256_file(server.folder / NAME)
        download(f"{server.url}/{NAME}", target, sha256=sha256 or right, attempts=attempts, first_wait=0.0)
        return target

    return fetch


def held(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "cache").iterdir())


def test_whole_file(server: Any, fetch_train: Any, tmp_path: Path) -> None:
    assert fetch_train().read_bytes() == (server.folder / NAME).read_bytes()
    assert held(tmp_path) == [NAME]


def test_cut_connection_is_resumed(server: Any, fetch_train: Any, tmp_path: Path) -> None:
    server.faults = [("cut", 10), 503, ("cut", 5)]
    assert fetch_train(attempts=4).read_bytes() == (server.folder / NAME).read_bytes()
    assert [wanted for _, wanted in server.requests] == [None, "bytes=10-", "bytes=10-", "bytes=15-"]
    assert held(tmp_path) == [NAME]


def test_interrupted_download_goes_on_later(server: Any, fetch_train: Any, tmp_path: Path) -> None:
    server.faults = [("cut", 10), ("cut", 7)]
    size = (server.folder / NAME).stat().st_size
    message = (
        rf"download failed in 2 attempts \(the connection ended after 17 of {size} bytes\): run it again"
    )
    with pytest.raises(OSError, match=message):
        fetch_train(attempts=2)
    assert held(tmp_path) == [f"{NAME}.partial"]
    fetch_train()
    assert server.requests[-1] == (NAME, "bytes=17-")
    assert held(tmp_path) == [NAME]


def test_server_without_ranges_starts_over(server: Any, fetch_train: Any) -> None:
    server.ranges = False
    server.faults = [("cut", 10)]
    assert fetch_train(attempts=2).read_bytes() == (server.folder / NAME).read_bytes()


@pytest.mark.parametrize("stale", [b"something else", b"x" * 5000])
def test_stale_partial_is_discarded(server: Any, fetch_train: Any, tmp_path: Path, stale: bytes) -> None:
    """The beginning of another version, and one longer than the file is now (HTTP 416)."""
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / f"{NAME}.partial").write_bytes(stale)
    assert fetch_train(attempts=2).read_bytes() == (server.folder / NAME).read_bytes()
    assert held(tmp_path) == [NAME]


def test_wrong_checksum_removes_the_file(server: Any, fetch_train: Any, tmp_path: Path) -> None:
    wrong, right = "0" * 64, sha256_file(server.folder / NAME)
    with pytest.raises(
        ValueError, match=rf"{NAME}: wrong checksum: expected sha256 {wrong}, got {right}; the file"
    ):
        fetch_train(sha256=wrong)
    assert held(tmp_path) == []


def test_missing_file_is_not_tried_again(server: Any, fetch_train: Any, tmp_path: Path) -> None:
    server.faults = [404]
    with pytest.raises(FileNotFoundError, match=rf"{NAME}: the server says 404 .*: check the address"):
        fetch_train(attempts=3)
    assert len(server.requests) == 1


def test_server_gone(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"download failed in 2 attempts \(.*refused.*\): run it again"):
        download("http://127.0.0.1:1/a.gz", tmp_path / "a.gz", sha256="", attempts=2, first_wait=0.0)


def test_full_disk_is_not_tried_again(server: Any, fetch_train: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class FullDisk:
        def __init__(self, **kwargs: object) -> None: ...

        def __enter__(self) -> FullDisk:
            return self

        def __exit__(self, *args: object) -> None: ...

        def update(self, count: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("rskip.corpora.download.tqdm", FullDisk)
    with pytest.raises(OSError, match="No space left"):
        fetch_train(attempts=3)
    assert len(server.requests) == 1


def test_two_at_once_share_one_download(server: Any, fetch_train: Any, tmp_path: Path) -> None:
    threads = [threading.Thread(target=fetch_train) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(server.requests) == 1
    assert held(tmp_path) == [NAME]
