"""Downloads that fail, stop, start again, are shared, and are checked."""

from __future__ import annotations

import errno
import hashlib
import http.server
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rskip.files.checksum import file_sum
from rskip.files.download import NotReached, NotServed, WrongFile, download
from rskip.machine.progress import Progress

NAME = "train.en.gz"
CONTENT = bytes(range(251)) * 8
SHA256, MD5 = hashlib.sha256(CONTENT).hexdigest(), hashlib.md5(CONTENT).hexdigest()


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rskip.files.download.FIRST_WAIT", 0.0)


@pytest.fixture
def server(file_server: Callable[[Path], Any], tmp_path: Path) -> Any:
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / NAME).write_bytes(CONTENT)
    return file_server(tmp_path / "served")


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "cache" / NAME


@pytest.fixture
def fetch(server: Any, target: Path) -> Callable[..., None]:
    """Downloads `target` from `server`; its SHA-256 is known."""

    def fetch(attempts: int = 1, **options: Any) -> None:
        download(f"{server.url}/{NAME}", target, attempts=attempts, **{"sha256": SHA256, **options})

    return fetch


def held(target: Path) -> list[str]:
    return sorted(path.name for path in target.parent.iterdir())


@pytest.mark.parametrize("sums", [{}, {"sha256": SHA256}, {"sha256": None, "md5": MD5, "size": len(CONTENT)}])
def test_the_file_comes_and_what_is_right_is_left(server: Any, fetch: Any, target: Path, sums: Any) -> None:
    for _ in range(2):
        fetch(**sums)
        assert target.read_bytes() == CONTENT and held(target) == [NAME]
    assert len(server.requests) == 1
    target.write_bytes(b"damaged")
    fetch(**sums)
    assert target.read_bytes() == CONTENT


def test_a_cut_connection_and_a_busy_server_are_tried_again(server: Any, fetch: Any, target: Path) -> None:
    server.faults = [("cut", 10), 503, ("cut", 5)]
    fetch(attempts=4)
    assert target.read_bytes() == CONTENT and held(target) == [NAME]
    assert server.requests == [NAME] * 4


def test_a_download_that_failed_leaves_nothing(server: Any, fetch: Any, target: Path) -> None:
    url = f"{server.url}/{NAME}"
    for fault, reason in ((("cut", 10), r".*10 bytes read, 1998 more expected.*"), (503, "the server answered 503 .*")):
        server.faults = [fault] * 2
        with pytest.raises(NotReached) as error:
            fetch(attempts=2, otherwise="give a mirror")
        said = rf"{url}: download failed in 2 attempts \({reason}\): run it again, or give a mirror"
        assert re.fullmatch(said, str(error.value))
        assert isinstance(error.value, OSError) and held(target) == []


def test_what_is_not_the_file_never_gets_its_name(server: Any, fetch: Any, target: Path) -> None:
    wrong, page = "0" * 64, server.Answer(b"<html>", headers={"Content-Type": "text/html; charset=utf-8"})
    for options, fault, kind, problem in (
        ({"sha256": wrong}, None, WrongFile, f"the file has the sha256 {SHA256}, expected {wrong}; it was removed"),
        ({"sha256": None, "md5": wrong}, None, WrongFile, f"the file has the md5 {MD5}, expected {wrong}; it was "),
        ({"size": 7}, server.Answer(CONTENT, length=""), WrongFile, "the server's file has at least 2,008 bytes, "),
        ({"size": 7_000_000}, None, WrongFile, "the file has 2,008 bytes, expected 7,000,000; it was removed"),
        ({}, page, NotServed, "the server answered with a web page instead of the file"),
        ({}, 404, NotServed, "the server answered 404 Not Found"),
    ):
        server.requests, server.faults = [], [fault]
        with pytest.raises(kind, match=f"{NAME}: {re.escape(problem)}.*: .*, or give a mirror$") as error:
            fetch(attempts=3, otherwise="give a mirror", **options)
        assert isinstance(error.value, ValueError if kind is WrongFile else FileNotFoundError)
        assert held(target) == [] and len(server.requests) == 1


def test_an_endless_answer_without_a_length_ends_at_the_files_size(tmp_path: Path) -> None:
    sent = 0

    class Endless(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            nonlocal sent
            self.send_response(200)
            self.end_headers()
            try:
                while sent < 1 << 26:
                    sent += self.wfile.write(bytes(1 << 16))
            except OSError:  # nobody reads any more
                pass

        def log_message(self, *args: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Endless) as running:
        threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01}).start()
        with pytest.raises(WrongFile, match=r"a\.gz: the server's file has at least [\d,]+ bytes, expected 1,000"):
            download(f"http://127.0.0.1:{running.server_port}/a.gz", tmp_path / "a.gz", size=1000)
        running.shutdown()
    assert sent < 1 << 26 and list(tmp_path.iterdir()) == []


def test_odd_headers_change_nothing(server: Any, fetch: Any, target: Path) -> None:
    """A length that is none, and the encoding that some servers add to what is packed."""
    server.faults = [server.Answer(CONTENT, length="many", headers={"Content-Encoding": "x-gzip"})]
    fetch(size=len(CONTENT))
    assert target.read_bytes() == CONTENT


def test_what_is_no_address_is_said(server: Any, fetch: Any, target: Path) -> None:
    server.faults = [server.Answer(b"", 302, {"Location": "http://[::1/x"})]
    with pytest.raises(WrongFile, match=r": not a URL \(Invalid IPv6 URL\): correct it$"):
        fetch()
    for address in ("http://[::1", "ftp://127.0.0.1/a", f"http://{'x' * 70}.example"):
        with pytest.raises(WrongFile, match=rf"^{re.escape(address)}: not a URL \([^\n]+\): correct "):
            download(address, target)


def test_a_bad_disk_is_not_tried_again(server: Any, fetch: Any, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, bad in enumerate((errno.EIO, errno.ENOSPC), start=1):

        def update(bar: Progress, count: int, bad: int = bad) -> None:
            raise OSError(bad, "gone")

        monkeypatch.setattr(Progress, "update", update)
        with pytest.raises(OSError, match="gone") as caught:
            fetch(attempts=3)
        assert caught.value.errno == bad and len(server.requests) == number and held(target) == []


def test_each_wait_is_twice_as_long(server: Any, fetch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    monkeypatch.setattr("rskip.files.download.sleep", waits.append)
    monkeypatch.setattr("rskip.files.download.FIRST_WAIT", 1.5)
    server.faults = [503, 500, 429]
    fetch(attempts=4)
    assert waits == [0, 1.5, 3, 6]


def test_a_server_that_falls_silent(server: Any, fetch: Any, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rskip.files.download.TIMEOUT_SECONDS", 0.2)
    server.faults = [server.Answer(CONTENT[:4], length=len(CONTENT), hang=1.0)]
    fetch(attempts=2)
    assert server.requests == [NAME] * 2 and target.read_bytes() == CONTENT


@pytest.mark.parametrize("sha256", [None, SHA256])
def test_of_several_at_once_one_downloads(server: Any, fetch: Any, target: Path, sha256: str | None) -> None:
    server.faults = [server.Answer(CONTENT[:10], length=len(CONTENT), hang=0.2)]
    threads = [threading.Thread(target=fetch, kwargs={"attempts": 2, "sha256": sha256}) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert server.requests == [NAME] * 2
    assert held(target) == [NAME] and file_sum(target, "sha256") == SHA256


def test_after_a_killed_process_another_downloads(server: Any, fetch: Any, target: Path) -> None:
    """It leaves the lock, which the next one takes, and what it received."""
    server.faults = [server.Answer(CONTENT[:10], length=len(CONTENT), hang=60)]
    program = f"""
from pathlib import Path
from rskip.files.download import download
download("{server.url}/{NAME}", Path("{target}"), sha256="{SHA256}")
"""
    process = subprocess.Popen([sys.executable, "-c", program])
    until = time.monotonic() + 60
    while not server.requests and time.monotonic() < until:
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert server.requests == [NAME] and len(held(target)) > 1 and not target.exists()
    fetch()
    assert target.read_bytes() == CONTENT and held(target) == [NAME]
