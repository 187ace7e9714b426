"""Downloads files: with retries, resumption and verification; a file appears only when it is complete."""

from __future__ import annotations

import dataclasses
import errno
import functools
import http.client
import json
import ssl
import threading
import urllib.error
import urllib.request
from dataclasses import dataclass
from email.message import Message
from pathlib import Path

from rskip.files.checksum import file_difference
from rskip.files.lock import one_at_a_time
from rskip.files.state import read_state
from rskip.files.whole import require_space
from rskip.settings.errors import SettingError

BLOCK = 1 << 16
TIMEOUT_SECONDS = 60
FIRST_WAIT = 1.0  # seconds before the second attempt; each further wait is twice as long
BUSY = (408, 425, 429, 500, 502, 503, 504)  # HTTP statuses that are worth another attempt
NO_NETWORK = (errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH)
BROKEN_CONNECTION = (
    urllib.error.URLError,
    http.client.HTTPException,
    ConnectionError,
    TimeoutError,
    ssl.SSLError,
)


class DownloadError(Exception):
    """Base class of the errors of a download.

    :param url: the URL of the file.
    :param problem: what is wrong.
    :param advice: what to do.
    """

    def __init__(self, url: str, problem: str, advice: str) -> None:
        self.url, self.problem, self.advice = url, problem, advice
        super().__init__(f"{url}: {problem}: {advice}")


class NotServed(DownloadError, FileNotFoundError):
    """The server doesn't have the file."""


class WrongFile(DownloadError, ValueError):
    """The server has another file, or the URL is invalid."""


class NotReached(DownloadError, OSError):
    """Every attempt failed. The received part is kept."""


class Stopped(Exception):
    """The caller stopped the download."""


class _CutShort(Exception):
    """The connection ended before the end of the file."""


def download(
    url: str,
    target: Path,
    *,
    size: int | None = None,
    sha256: str | None = None,
    md5: str | None = None,
    otherwise: str = "",
    stop: threading.Event | None = None,
    attempts: int = 5,
) -> None:
    """Downloads `url` to `target`, which appears or is replaced when the file is complete and its checksum matches.

    A target with the right checksum stays unchanged. If several processes download the same target, one does so and
    the others wait. The received part of an interrupted download stays in `<target>.partial`. The next download
    resumes from there if the server allows it (HTTP Range). Without a checksum, both parts must be of one version: the
    server must confirm it (If-Range), or the file must still have the same length and URL. Otherwise the download
    starts again.

    :param size: expected bytes; None: unknown.
    :param sha256: expected checksum; None: unknown. `md5` likewise.
    :param otherwise: what else a user can do, such as "give another mirror", for errors.
    :param stop: set by another thread to stop the download.
    :param attempts: number of attempts if the connection fails.
    :raises NotServed: the server doesn't have the file (a FileNotFoundError).
    :raises WrongFile: size or checksum are wrong, and the file is removed; or `url` is invalid (a ValueError).
    :raises ValueError: `target` is a folder.
    :raises NotReached: every attempt failed (an OSError). The received part is kept.
    :raises OSError: the disk is full, or can't be written.
    :raises Stopped: `stop` was set. The received part is kept.
    """
    find_wrong = functools.partial(file_difference, size=size, sha256=sha256, md5=md5)
    sum_known, before = bool(sha256 or md5), _identity(target)
    with one_at_a_time(target):
        if find_wrong(target) is None if sum_known else _identity(target) not in (None, before):
            return
        transfer = _Transfer(url, target, size, sum_known, otherwise, stop or threading.Event())
        partial = transfer.partial
        transfer.refuse_folders()
        resumed = partial.exists() and partial.stat().st_size > 0
        transfer.receive(attempts=attempts)
        wrong = find_wrong(partial)
        if wrong and resumed and sum_known:
            # The partial file may have been of another version.
            transfer.restart()
            transfer.receive(attempts=attempts)
            wrong = find_wrong(partial)
        if wrong:
            transfer.forget()
            raise transfer.error(WrongFile, f"the file {wrong}; it was removed", "try again")
        partial.replace(target)
        transfer.forget()


def _identity(path: Path) -> tuple[int, int, int] | None:
    """Identifies the file of this name; None if there is none."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


@dataclass(frozen=True)
class _Beginning:
    """The version of the file in `<target>.partial`; stored in `<target>.partial.json`.

    :param validator: the server's mark of the version: a strong ETag, or Last-Modified.
    """

    url: str
    validator: str | None
    total: int | None


@dataclass(frozen=True)
class _Transfer:
    """The download of one file."""

    url: str
    target: Path
    size: int | None
    sum_known: bool
    otherwise: str
    stop: threading.Event

    def error(self, kind: type[DownloadError], problem: str, advice: str) -> DownloadError:
        return kind(self.url, problem, f"{advice}, or {self.otherwise}" if self.otherwise else advice)

    @property
    def partial(self) -> Path:
        return self.target.with_name(self.target.name + ".partial")

    @property
    def _note(self) -> Path:
        return self.partial.with_name(self.partial.name + ".json")

    def refuse_folders(self) -> None:
        """:raises ValueError: the path of a file is a folder."""
        for path in (self.target, self.partial, self._note):
            if path.is_dir():
                raise ValueError(f"{path} is a folder, expected a file: remove the folder")

    def restart(self) -> None:
        """Empties the partial file."""
        with self.partial.open("wb"):
            pass
        self._note.unlink(missing_ok=True)

    def forget(self) -> None:
        """Removes the received part."""
        self.partial.unlink(missing_ok=True)
        self._note.unlink(missing_ok=True)

    def receive(self, *, attempts: int) -> None:
        """Downloads the missing part of the partial file, in several attempts. An error leaves no empty files."""
        try:
            self._receive(attempts)
        except BaseException:
            if self.partial.exists() and self.partial.stat().st_size == 0:
                self.forget()
            raise

    def _receive(self, attempts: int) -> None:
        for attempt in range(attempts):
            if self.stop.wait(FIRST_WAIT * 2 ** (attempt - 1) if attempt else 0):
                raise Stopped
            try:
                return self._receive_once()
            except urllib.error.HTTPError as error:
                if error.code not in BUSY:
                    problem = f"the server answered {error.code} {_on_one_line(error.reason)}"
                    raise self.error(NotServed, problem, "check the URL") from error
                reason: Exception = error
            except (*BROKEN_CONNECTION, _CutShort) as error:
                reason = error
            except OSError as error:
                if error.errno not in NO_NETWORK:
                    raise
                reason = error
        problem = f"download failed in {attempts} attempts ({_on_one_line(reason)})"
        raise self.error(NotReached, problem, "run it again to resume")

    def _receive_once(self) -> None:
        """Requests the bytes after the end of the partial file once."""
        from rskip.machine.progress import Progress  # an extra brings tqdm

        self.partial.touch()
        beginning = self._read_note()
        if not self.sum_known and (beginning is None or beginning.url != self.url):
            self.restart()
        start = self.partial.stat().st_size
        if start and start == (self.size or (beginning and beginning.total)):
            return
        headers = {"User-Agent": "rskip"}
        if start:
            headers["Range"] = f"bytes={start}-"
            if not self.sum_known and beginning is not None and beginning.validator:
                headers["If-Range"] = beginning.validator
        try:
            request = urllib.request.Request(self.url, headers=headers)
            response = urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS)
        except urllib.error.HTTPError as error:
            if start and error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                self.restart()
                raise _CutShort("the received part doesn't fit the server's file") from error
            raise
        except ValueError as error:  # the URL, or one that the server redirects to
            raise self.error(WrongFile, f"not a URL ({_on_one_line(error)})", "correct it") from error
        with response:
            if response.headers.get_content_type() == "text/html" and self.target.suffix not in (".html", ".htm"):
                problem = "the server answered with a web page instead of the file"
                raise self.error(NotServed, problem, "open the URL in a browser")
            if start and not response.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
                self.restart()
                start = 0
            length = response.headers.get("Content-Length", "")
            total = start + int(length) if length.isdecimal() else None
            if None not in (total, self.size) and total != self.size:
                problem = f"the server's file has {total:,} bytes, expected {self.size:,}"
                raise self.error(WrongFile, problem, "try later")
            if not start:
                self._write_note(_Beginning(self.url, _validator(response.headers), total))
            elif not self.sum_known and beginning is not None and total != beginning.total:
                self.restart()
                raise _CutShort("the server's file has changed during the download")
            if total is not None:
                require_space(self.partial, total - start)
            with (
                self.partial.open("ab") as file,
                Progress(self.target.name, total=total, done=start) as bar,
            ):
                while block := response.read1(BLOCK):  # the available bytes, so that nothing is lost if no more arrive
                    file.write(block)
                    bar.update(len(block))
                    if self.size is not None and file.tell() > self.size:
                        break  # the server sent no length, and sends more bytes than expected
                    if self.stop.is_set():
                        raise Stopped
        size, whole = self.partial.stat().st_size, self.size if total is None else total
        if whole is not None and size < whole:
            raise _CutShort(f"the connection ended after {size:,} of {whole:,} bytes")

    def _read_note(self) -> _Beginning | None:
        try:
            return read_state(self._note, _Beginning, advice="")
        except (FileNotFoundError, SettingError):
            return None  # missing, or truncated because the machine stopped

    def _write_note(self, beginning: _Beginning) -> None:
        self._note.write_text(json.dumps(dataclasses.asdict(beginning)), encoding="utf-8")


def _on_one_line(reason: object) -> str:
    """A message of a server or library, without line breaks and control characters."""
    return " ".join("".join(each if each.isprintable() else " " for each in str(reason)).split())


def _validator(headers: Message) -> str | None:
    """The value for If-Range, which does not accept weak ETags."""
    tag = headers.get("ETag")
    return tag if tag and not tag.startswith("W/") else headers.get("Last-Modified")
