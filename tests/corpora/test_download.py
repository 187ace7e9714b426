"""Downloads that fail, stop, go on, and are checked."""

from __future__ import annotations

import errno
import hashlib
import http.client
import http.server
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rskip.files.checksum import sha256_file
from rskip.files.download import Stopped, download

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
    message = rf"download failed in 2 attempts \(the connection ended after 17 of {size} bytes\): run it again"
    with pytest.raises(OSError, match=message):
        fetch_train(attempts=2)
    assert held(tmp_path) == [f"{NAME}.partial", f"{NAME}.partial.json"]
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
    with pytest.raises(ValueError, match=rf"{NAME}: wrong checksum: expected sha256 {wrong}, got {right}; the file"):
        fetch_train(sha256=wrong)
    assert held(tmp_path) == []


def test_wrong_size_is_seen_before_the_download(server: Any, tmp_path: Path) -> None:
    size = (server.folder / NAME).stat().st_size
    target = tmp_path / "cache" / NAME
    message = rf"{NAME}: wrong size: expected 7,000,000,000 bytes, the server's file has {size}: use another"
    with pytest.raises(ValueError, match=message):
        download(f"{server.url}/{NAME}", target, size=7_000_000_000, attempts=3, first_wait=0.0)
    assert len(server.requests) == 1
    assert target.with_name(f"{NAME}.partial").stat().st_size == 0


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
        with pytest.raises(ValueError, match=r"a\.gz: wrong size: expected 1,000 bytes, got [\d,]+; the file"):
            download(f"http://127.0.0.1:{running.server_port}/a.gz", tmp_path / "a.gz", size=1000, first_wait=0.0)
        running.shutdown()
    assert sent < 1 << 26 and list(tmp_path.iterdir()) == []


def test_an_answer_without_a_usable_length_is_resumed_where_the_size_is_known(
    answering: AnsweringServer, tmp_path: Path
) -> None:
    body = bytes(range(256))
    answering.answers = [
        Answer(body[:100], headers={"Content-Length": "256, 256"}),
        Answer(body[100:], 206, {"Content-Range": "bytes 100-255/256", "Content-Length": "many"}),
    ]
    download(answering.url, tmp_path / NAME, size=256, sha256=hashlib.sha256(body).hexdigest(), first_wait=0.0)
    assert (tmp_path / NAME).read_bytes() == body
    assert [request.get("Range") for request in answering.requests] == [None, "bytes=100-"]


def test_a_servers_words_are_put_on_one_line(answering: AnsweringServer, tmp_path: Path) -> None:
    answering.answers = [Answer(b"", 302, {"Location": "/again"})] * 20
    message = r"the server says 302 [^\n]+ infinite loop\. [^\n]+, or give --mirror$"
    with pytest.raises(FileNotFoundError, match=message):
        download(answering.url, tmp_path / NAME, first_wait=0.0)
    answering.answers = [Answer(b"", 302, {"Location": "http://[::1/x"})]
    with pytest.raises(ValueError, match=r": no address to fetch from \(Invalid IPv6 URL\): use another --mirror$"):
        download(answering.url, tmp_path / NAME, first_wait=0.0)


def test_a_network_that_goes_away_is_tried_again_and_a_bad_disk_is_not(
    server: Any, fetch_train: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = http.client.HTTPResponse.read1
    faults = [errno.ENETUNREACH, errno.EHOSTUNREACH]

    def read1(response: http.client.HTTPResponse, size: int) -> bytes:
        if faults:
            raise OSError(faults.pop(), "gone")
        return read(response, size)

    monkeypatch.setattr("http.client.HTTPResponse.read1", read1)
    assert fetch_train(attempts=3).read_bytes() == (server.folder / NAME).read_bytes()
    faults = [errno.EIO]
    with pytest.raises(OSError, match="gone") as caught:
        fetch_train(attempts=3)
    assert caught.value.errno == errno.EIO and len(server.requests) == 4


def test_missing_file_is_not_tried_again(server: Any, fetch_train: Any, tmp_path: Path) -> None:
    server.faults = [404]
    with pytest.raises(FileNotFoundError, match=rf"{NAME}: the server says 404 .*: check the address"):
        fetch_train(attempts=3)
    assert len(server.requests) == 1


def test_server_gone(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"download failed in 2 attempts \(.*refused.*\): run it again"):
        download("http://127.0.0.1:1/a.gz", tmp_path / "a.gz", sha256="", attempts=2, first_wait=0.0)


def test_waits_twice_as_long_each_time(server: Any, tmp_path: Path) -> None:
    waits: list[float] = []

    class Waiting(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout or 0)
            return False

    server.faults = [503, 500, 429]
    download(f"{server.url}/{NAME}", tmp_path / NAME, stop=Waiting(), attempts=4, first_wait=1.5)
    assert waits == [0, 1.5, 3, 6]


def test_full_disk_is_not_tried_again(server: Any, fetch_train: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class FullDisk:
        def __init__(self, **kwargs: object) -> None: ...

        def __enter__(self) -> FullDisk:
            return self

        def __exit__(self, *args: object) -> None: ...

        def update(self, count: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("rskip.files.download.tqdm", FullDisk)
    with pytest.raises(OSError, match="No space left"):
        fetch_train(attempts=3)
    assert len(server.requests) == 1


@dataclass
class Answer:
    """What the server says to one request.

    :param length: the Content-Length; that of the body unless given.
    :param hang: seconds to wait after the body before hanging up.
    """

    body: bytes
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    length: int | None = None
    hang: float = 0.0


class AnsweringServer(http.server.ThreadingHTTPServer):
    """Gives the next of `answers` to each request, and keeps each request's headers."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), AnsweringHandler)
        self.answers: list[Answer] = []
        self.requests: list[dict[str, str]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/{NAME}"


class AnsweringHandler(http.server.BaseHTTPRequestHandler):
    server: AnsweringServer

    def do_GET(self) -> None:
        self.server.requests.append(dict(self.headers))
        answer = self.server.answers.pop(0)
        self.send_response(answer.status)
        length = len(answer.body) if answer.length is None else answer.length
        for name, value in {"Content-Length": str(length), **answer.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.body)
        self.wfile.flush()
        time.sleep(answer.hang)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def answering() -> Iterator[AnsweringServer]:
    with AnsweringServer() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def rest(body: bytes, start: int, total: int, **headers: str) -> Answer:
    return Answer(body, 206, {"Content-Range": f"bytes {start}-{total - 1}/{total}", **headers})


def interrupted(answering: AnsweringServer, target: Path, **headers: str) -> None:
    """Leaves the first 4 of 10 bytes of the file."""
    answering.answers = [Answer(b"0123", length=10, headers=headers)]
    with pytest.raises(OSError, match=r"failed in 1 attempts \(the connection ended after 4 of 10 bytes\)"):
        download(answering.url, target, attempts=1)


@pytest.mark.parametrize(
    ("headers", "validator"),
    [
        ({"ETag": '"v1"', "Last-Modified": "Tue, 01 Apr 2014 00:00:00 GMT"}, '"v1"'),
        ({"ETag": 'W/"v1"', "Last-Modified": "Tue, 01 Apr 2014 00:00:00 GMT"}, "Tue, 01 Apr 2014 00:00:00 GMT"),
    ],
)
def test_without_a_sum_the_server_says_whether_the_rest_fits(
    answering: AnsweringServer, tmp_path: Path, headers: dict[str, str], validator: str
) -> None:
    interrupted(answering, tmp_path / NAME, **headers)
    answering.answers = [rest(b"456789", 4, 10)]
    sha256 = download(answering.url, tmp_path / NAME, attempts=1)
    assert answering.requests[-1]["Range"] == "bytes=4-" and answering.requests[-1]["If-Range"] == validator
    assert (tmp_path / NAME).read_bytes() == b"0123456789"
    assert sha256 == sha256_file(tmp_path / NAME)


def test_without_a_sum_a_changed_file_replaces_its_beginning(answering: AnsweringServer, tmp_path: Path) -> None:
    interrupted(answering, tmp_path / NAME, ETag='"v1"')
    answering.answers = [Answer(b"a new file", headers={"ETag": '"v2"'})]
    download(answering.url, tmp_path / NAME, attempts=1)
    assert (tmp_path / NAME).read_bytes() == b"a new file"


def test_without_a_sum_or_a_version_the_length_must_be_the_same(answering: AnsweringServer, tmp_path: Path) -> None:
    interrupted(answering, tmp_path / NAME)
    answering.answers = [rest(b"4567", 4, 8), Answer(b"a new file")]
    download(answering.url, tmp_path / NAME, attempts=2, first_wait=0.0)
    assert [request.get("Range") for request in answering.requests] == [None, "bytes=4-", None]
    assert (tmp_path / NAME).read_bytes() == b"a new file"


def test_without_a_sum_another_address_begins_anew(answering: AnsweringServer, tmp_path: Path) -> None:
    interrupted(answering, tmp_path / NAME, ETag='"v1"')
    answering.answers = [Answer(b"a mirror's file")]
    download(f"{answering.url}?mirror", tmp_path / NAME, attempts=1)
    assert "Range" not in answering.requests[-1]
    assert (tmp_path / NAME).read_bytes() == b"a mirror's file"


def test_killed_between_the_last_byte_and_the_rename(answering: AnsweringServer, tmp_path: Path) -> None:
    """Nothing is left to ask for."""
    interrupted(answering, tmp_path / NAME)
    with (tmp_path / f"{NAME}.partial").open("ab") as partial:
        partial.write(b"456789")
    download(answering.url, tmp_path / NAME, attempts=1)
    assert len(answering.requests) == 1
    assert (tmp_path / NAME).read_bytes() == b"0123456789"


def test_web_page_in_place_of_the_file(answering: AnsweringServer, tmp_path: Path) -> None:
    answering.answers = [Answer(b"<html>Please log in", headers={"Content-Type": "text/html; charset=utf-8"})]
    with pytest.raises(FileNotFoundError, match=rf"{NAME}: the server answers with a web page in place of the file"):
        download(answering.url, tmp_path / NAME, attempts=2, first_wait=0.0)
    assert not (tmp_path / NAME).exists()


def test_server_that_falls_silent(answering: AnsweringServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rskip.files.download.TIMEOUT_SECONDS", 0.2)
    answering.answers = [Answer(b"0123", length=10, hang=1.0), rest(b"456789", 4, 10)]
    download(answering.url, tmp_path / NAME, attempts=2, first_wait=0.0)
    assert answering.requests[-1]["Range"] == "bytes=4-"
    assert (tmp_path / NAME).read_bytes() == b"0123456789"


def test_stopped_by_the_caller(answering: AnsweringServer, tmp_path: Path) -> None:
    """What was received stays, and the next download goes on from there."""
    stop = threading.Event()
    timer = threading.Timer(0.1, stop.set)
    answering.answers = [Answer(b"0123", length=10, hang=0.3)]
    timer.start()
    with pytest.raises(Stopped):
        download(answering.url, tmp_path / NAME, stop=stop, attempts=5)
    assert (tmp_path / f"{NAME}.partial").read_bytes() == b"0123"
    answering.answers = [rest(b"456789", 4, 10)]
    download(answering.url, tmp_path / NAME, attempts=1)
    assert (tmp_path / NAME).read_bytes() == b"0123456789"
