"""Downloads that fail, stop, go on, are shared, and are checked."""

from __future__ import annotations

import errno
import hashlib
import http.client
import http.server
import io
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rskip.files.checksum import file_sum
from rskip.files.download import NotReached, NotServed, Stopped, WrongFile, download

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


def test_a_cut_connection_is_resumed(server: Any, fetch: Any, target: Path) -> None:
    server.faults = [("cut", 10), 503, ("cut", 5)]
    fetch(attempts=4)
    assert target.read_bytes() == CONTENT and held(target) == [NAME]
    assert [wanted for _, wanted in server.requests] == [None, "bytes=10-", "bytes=10-", "bytes=15-"]


def test_an_interrupted_download_goes_on_later(server: Any, fetch: Any, target: Path) -> None:
    server.faults = [("cut", 10), ("cut", 7)]
    with pytest.raises(NotReached) as error:
        fetch(attempts=2, otherwise="give a mirror")
    url = f"{server.url}/{NAME}"
    problem = "download failed in 2 attempts (the connection ended after 17 of 2,008 bytes)"
    advice = "run it again to resume, or give a mirror"
    assert (error.value.url, error.value.problem, error.value.advice) == (url, problem, advice)
    assert str(error.value) == f"{url}: {problem}: {advice}" and isinstance(error.value, OSError)
    assert held(target) == [f"{NAME}.partial", f"{NAME}.partial.json"]
    fetch()
    assert server.requests[-1] == (NAME, "bytes=17-") and target.read_bytes() == CONTENT
    assert held(target) == [NAME]


def test_a_server_without_ranges_starts_over(server: Any, fetch: Any, target: Path) -> None:
    server.ranges, server.faults = False, [("cut", 10)]
    fetch(attempts=2)
    assert target.read_bytes() == CONTENT


@pytest.mark.parametrize(("stale", "attempts"), [(b"something else", 1), (b"x" * 5000, 2)])
def test_a_stale_partial_is_discarded(server: Any, fetch: Any, target: Path, stale: bytes, attempts: int) -> None:
    """The beginning of another version, and one longer than the file is now (HTTP 416)."""
    target.parent.mkdir()
    target.with_name(f"{NAME}.partial").write_bytes(stale)
    fetch(attempts=attempts)
    assert target.read_bytes() == CONTENT and held(target) == [NAME]
    assert [wanted for _, wanted in server.requests] == [f"bytes={len(stale)}-", None]


def test_what_is_not_the_file_never_gets_its_name(server: Any, fetch: Any, target: Path) -> None:
    wrong, page = "0" * 64, server.Answer(b"<html>", headers={"Content-Type": "text/html; charset=utf-8"})
    for options, fault, kind, problem in (
        ({"sha256": wrong}, None, WrongFile, f"the file has the sha256 {SHA256}, expected {wrong}; it was removed"),
        ({"sha256": None, "md5": wrong}, None, WrongFile, f"the file has the md5 {MD5}, expected {wrong}; it was "),
        ({"size": 7}, server.Answer(CONTENT, length=""), WrongFile, "the file has 2,008 bytes, expected 7; it was rem"),
        ({"size": 7_000_000}, None, WrongFile, "the server's file has 2,008 bytes, expected 7,000,000"),
        ({}, page, NotServed, "the server answered with a web page instead of the file"),
        ({}, 404, NotServed, "the server answered 404 Not Found"),
    ):
        server.requests, server.faults = [], [fault]
        with pytest.raises(kind, match=f"{NAME}: {re.escape(problem)}.*: .*, or give a mirror$") as error:
            fetch(attempts=3, otherwise="give a mirror", **options)
        assert isinstance(error.value, ValueError if kind is WrongFile else FileNotFoundError)
        assert not target.exists() and len(server.requests) == 1
        assert not target.parent.exists() or all(path.stat().st_size == 0 for path in target.parent.iterdir())


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
        with pytest.raises(WrongFile, match=r"a\.gz: the file has [\d,]+ bytes, expected 1,000; it was removed"):
            download(f"http://127.0.0.1:{running.server_port}/a.gz", tmp_path / "a.gz", size=1000)
        running.shutdown()
    assert sent < 1 << 26 and list(tmp_path.iterdir()) == []


def test_an_answer_without_a_usable_length_is_resumed_where_the_size_is_known(
    server: Any, fetch: Any, target: Path
) -> None:
    rest = {"Content-Range": f"bytes 100-2007/{len(CONTENT)}"}
    server.faults = [
        server.Answer(CONTENT[:100], length="2008, 2008"), server.Answer(CONTENT[100:], 206, rest, length="many")
    ]  # fmt: skip
    fetch(attempts=5, size=len(CONTENT))
    assert target.read_bytes() == CONTENT
    assert [wanted for _, wanted in server.requests] == [None, "bytes=100-"]


def test_a_servers_words_are_put_on_one_line(server: Any, fetch: Any) -> None:
    server.faults = [server.Answer(b"", 302, {"Location": "/again"})] * 20
    with pytest.raises(NotServed, match=r"the server answered 302 [^\n]+ infinite loop\. [^\n]+: check the URL$"):
        fetch()


def test_what_is_no_address_is_said(server: Any, fetch: Any, target: Path) -> None:
    server.faults = [server.Answer(b"", 302, {"Location": "http://[::1/x"})]
    with pytest.raises(WrongFile, match=r": not a URL \(Invalid IPv6 URL\): correct it$"):
        fetch()
    for address in ("http://[::1", "http://127.0.0.1:9/mod\u00e8les", f"http://{'x' * 70}.example"):
        with pytest.raises(WrongFile, match=rf"^{re.escape(address)}: not a URL \([^\n]+\): correct "):
            download(address, target)


def test_a_network_that_goes_away_is_tried_again_and_a_bad_disk_is_not(
    server: Any, fetch: Any, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = http.client.HTTPResponse.read1
    faults = [errno.ENETUNREACH, errno.EHOSTUNREACH]

    def read1(response: http.client.HTTPResponse, size: int) -> bytes:
        if faults:
            raise OSError(faults.pop(), "gone")
        return read(response, size)

    monkeypatch.setattr("http.client.HTTPResponse.read1", read1)
    fetch(attempts=3)
    target.unlink()
    for number, bad in enumerate((errno.EIO, errno.ENOSPC), start=4):
        faults = [bad]
        with pytest.raises(OSError, match="gone") as caught:
            fetch(attempts=3)
        assert caught.value.errno == bad and len(server.requests) == number


def test_a_server_that_is_gone(target: Path) -> None:
    with pytest.raises(NotReached, match=r"download failed in 2 attempts \(.*refused.*\): run it again"):
        download("http://127.0.0.1:1/a.gz", target, attempts=2)


def test_each_wait_is_twice_as_long(server: Any, fetch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    class Waiting(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout or 0)
            return False

    monkeypatch.setattr("rskip.files.download.FIRST_WAIT", 1.5)
    server.faults = [503, 500, 429]
    fetch(attempts=4, stop=Waiting())
    assert waits == [0, 1.5, 3, 6]


def test_a_disk_that_is_too_small_is_seen_before_the_download(
    server: Any, fetch: Any, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(server.folder)._replace(free=20)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(OSError, match=rf"2,008 bytes needed, 20 free: '{target}\.partial'") as error:
        fetch()
    assert error.value.errno == errno.ENOSPC and held(target) == []


@pytest.mark.parametrize("name", [NAME, f"{NAME}.partial", f"{NAME}.partial.json"])
def test_a_folder_where_a_file_belongs(server: Any, fetch: Any, target: Path, name: str) -> None:
    target.with_name(name).mkdir(parents=True)
    with pytest.raises(ValueError, match=rf"/{name} is a folder, expected a file: remove the folder$"):
        fetch()
    assert server.requests == []


def test_progress_on_a_terminal_alone(
    fetch: Any, target: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    fetch()
    target.unlink()
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    fetch()
    assert re.search(r"train\.en\.gz: 100%.*2\.01k/2\.01k", terminal.getvalue())


def rest(server: Any, body: bytes, start: int, total: int) -> Any:
    return server.Answer(body, 206, {"Content-Range": f"bytes {start}-{total - 1}/{total}"})


def interrupted(server: Any, target: Path, **headers: str) -> None:
    """Leaves the first 4 of 10 bytes of the file, whose sum nobody knows."""
    server.faults = [server.Answer(b"0123", length=10, headers=headers)]
    with pytest.raises(NotReached, match=r"failed in 1 attempts \(the connection ended after 4 of 10 bytes\)"):
        download(f"{server.url}/{NAME}", target, attempts=1)


@pytest.mark.parametrize(
    ("headers", "validator"),
    [
        ({"ETag": '"v1"', "Last-Modified": "Tue, 01 Apr 2014 00:00:00 GMT"}, '"v1"'),
        ({"ETag": 'W/"v1"', "Last-Modified": "Tue, 01 Apr 2014 00:00:00 GMT"}, "Tue, 01 Apr 2014 00:00:00 GMT"),
    ],
)
def test_without_a_sum_the_server_says_whether_the_rest_fits(
    server: Any, target: Path, headers: dict[str, str], validator: str
) -> None:
    interrupted(server, target, **headers)
    server.faults = [rest(server, b"456789", 4, 10)]
    download(f"{server.url}/{NAME}", target, attempts=1)
    assert server.headers[-1]["Range"] == "bytes=4-" and server.headers[-1]["If-Range"] == validator
    assert target.read_bytes() == b"0123456789"


def test_without_a_sum_what_may_not_fit_is_begun_anew(server: Any, target: Path) -> None:
    """Another version at the server, another length where it tells no versions apart, another address."""
    for headers, answers, query, asked in (
        ({"ETag": '"v1"'}, [server.Answer(b"a new file", headers={"ETag": '"v2"'})], "", ["bytes=4-"]),
        ({}, [rest(server, b"4567", 4, 8), server.Answer(b"a new file")], "", ["bytes=4-", None]),
        ({"ETag": '"v1"'}, [server.Answer(b"a new file")], "?mirror", [None]),
    ):
        interrupted(server, target, **headers)
        server.requests, server.faults = [], answers
        download(f"{server.url}/{NAME}{query}", target, attempts=2)
        assert [wanted for _, wanted in server.requests] == asked
        assert target.read_bytes() == b"a new file"
        target.unlink()


def test_killed_between_the_last_byte_and_the_rename(server: Any, target: Path) -> None:
    """Nothing is left to ask for; a note that was half written is none."""
    interrupted(server, target)
    with target.with_name(f"{NAME}.partial").open("ab") as partial:
        partial.write(b"456789")
    download(f"{server.url}/{NAME}", target, attempts=1)
    assert len(server.requests) == 1 and target.read_bytes() == b"0123456789"
    target.unlink()
    interrupted(server, target)
    target.with_name(f"{NAME}.partial.json").write_text('{"url": "ht')
    download(f"{server.url}/{NAME}", target, attempts=1)
    assert server.requests[-1] == (NAME, None) and target.read_bytes() == CONTENT


def test_a_server_that_falls_silent(server: Any, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rskip.files.download.TIMEOUT_SECONDS", 0.2)
    server.faults = [server.Answer(b"0123", length=10, hang=1.0), rest(server, b"456789", 4, 10)]
    download(f"{server.url}/{NAME}", target, attempts=2)
    assert server.requests[-1] == (NAME, "bytes=4-") and target.read_bytes() == b"0123456789"


def test_stopped_by_the_caller(server: Any, target: Path) -> None:
    """What was received stays, and the next download goes on from there."""
    stop = threading.Event()
    server.faults = [server.Answer(b"0123", length=10, hang=0.3)]
    threading.Timer(0.1, stop.set).start()
    with pytest.raises(Stopped):
        download(f"{server.url}/{NAME}", target, stop=stop)
    assert target.with_name(f"{NAME}.partial").read_bytes() == b"0123"
    server.faults = [rest(server, b"456789", 4, 10)]
    download(f"{server.url}/{NAME}", target, attempts=1)
    assert target.read_bytes() == b"0123456789"


@pytest.mark.parametrize("sha256", [None, SHA256])
def test_of_several_at_once_one_downloads(server: Any, fetch: Any, target: Path, sha256: str | None) -> None:
    server.faults = [server.Answer(CONTENT[:10], length=len(CONTENT), hang=0.2)]
    threads = [threading.Thread(target=fetch, kwargs={"attempts": 2, "sha256": sha256}) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert server.requests == [(NAME, None), (NAME, "bytes=10-")]
    assert held(target) == [NAME] and file_sum(target, "sha256") == SHA256


def test_a_killed_process_leaves_what_it_received(server: Any, fetch: Any, target: Path) -> None:
    """And the lock, which the next one takes."""
    server.faults = [("cut", 10)]  # after which it waits for a second
    program = f"""
from pathlib import Path
from rskip.files.download import download
download("{server.url}/{NAME}", Path("{target}"), sha256="{SHA256}")
"""
    process = subprocess.Popen([sys.executable, "-c", program])
    partial, until = target.with_name(f"{NAME}.partial"), time.monotonic() + 60
    while not (partial.exists() and partial.stat().st_size == 10) and time.monotonic() < until:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert partial.stat().st_size == 10 and not target.exists()
    fetch()
    assert server.requests == [(NAME, None), (NAME, "bytes=10-")]
    assert target.read_bytes() == CONTENT and held(target) == [NAME]
