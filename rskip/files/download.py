"""Downloads files with pooch: with retries and verification; a file appears only when it is complete."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from time import sleep
from types import SimpleNamespace
from typing import Any

from rskip.extras import extra
from rskip.files.checksum import file_difference
from rskip.files.lock import one_at_a_time
from rskip.files.whole import atomic_file, remove_left
from rskip.machine.progress import Progress

with extra("translate", "translation", "vision", "captioning", what="a download"):
    import pooch
    import requests

TIMEOUT_SECONDS = 60
FIRST_WAIT = 1.0  # seconds before the second attempt; each further wait is twice as long
BUSY = (408, 425, 429, 500, 502, 503, 504)  # HTTP statuses that are worth another attempt


class DownloadError(Exception):
    """Base class of the errors of a download."""


class NotServed(DownloadError, FileNotFoundError):
    """The server doesn't have the file."""


class WrongFile(DownloadError, ValueError):
    """The server has another file, or the URL is invalid."""


class NotReached(DownloadError, OSError):
    """Every attempt failed."""


def download(
    url: str,
    target: Path,
    *,
    size: int | None = None,
    sha256: str | None = None,
    md5: str | None = None,
    otherwise: str = "",
    attempts: int = 5,
) -> None:
    """Downloads `url` to `target`, which appears or is replaced when the file is complete and its checksum matches.

    A target with the right checksum stays unchanged. If several processes download the same target, one does so and
    the others wait. An interrupted download leaves nothing.

    :param size: expected bytes; None: unknown.
    :param sha256: expected checksum; None: unknown. `md5` likewise.
    :param otherwise: what else a user can do, such as "give another mirror", for errors.
    :param attempts: number of attempts if the connection fails.
    :raises NotServed: the server doesn't have the file (a FileNotFoundError).
    :raises WrongFile: size or checksum are wrong, or `url` is invalid (a ValueError).
    :raises NotReached: every attempt failed (an OSError).
    :raises OSError: the disk is full, or can't be written; or `target` is a folder.
    """
    transfer = _Transfer(url, target, size, otherwise)
    before = target.stat().st_mtime_ns if target.exists() else None
    with one_at_a_time(target):
        made = target.exists() and target.stat().st_mtime_ns != before  # by another process
        if file_difference(target, size=size, sha256=sha256, md5=md5) is None if sha256 or md5 else made:
            return
        remove_left(target, seconds=0)  # of a killed process
        for attempt in range(attempts):
            sleep(FIRST_WAIT * 2 ** (attempt - 1) if attempt else 0)
            try:
                with atomic_file(target) as temporary:
                    transfer.receive(temporary)
                    if wrong := file_difference(temporary, size=size, sha256=sha256, md5=md5):
                        raise transfer.error(WrongFile, f"the file {wrong}; it was removed", "try again")
                return
            except DownloadError:
                raise
            except ValueError as error:  # the URL, or one that the server redirects to
                raise transfer.error(WrongFile, f"not a URL ({error})", "correct it") from error
            except requests.RequestException as error:
                reason = str(_cause(error))
                if error.response is not None:
                    reason = f"the server answered {error.response.status_code} {error.response.reason}"
                    if error.response.status_code not in BUSY:
                        raise transfer.error(NotServed, reason, "check the URL") from error
        raise transfer.error(NotReached, f"download failed in {attempts} attempts ({reason})", "run it again")


@dataclass(frozen=True)
class _Transfer:
    """The download of one file."""

    url: str
    target: Path
    size: int | None
    otherwise: str

    def error(self, kind: type[DownloadError], problem: str, advice: str) -> DownloadError:
        shown = "".join(each if each.isprintable() else " " for each in problem)  # words of a server or a library
        otherwise = f", or {self.otherwise}" if self.otherwise else ""
        return kind(f"{self.url}: {' '.join(shown.split())}: {advice}{otherwise}")

    def receive(self, path: Path) -> None:
        """Requests the file once and writes it to `path`."""
        with Progress(self.target.name) as bar, path.open("wb") as file:

            def check(answer: requests.Response, **_: Any) -> None:
                if answer.is_redirect or not answer.ok:
                    return
                if answer.headers.get("Content-Type", "").startswith("text/html"):
                    problem = "the server answered with a web page instead of the file"
                    raise self.error(NotServed, problem, "open the URL in a browser")
                length = answer.headers.get("Content-Length", "")
                total = int(length) if length.isdecimal() else 0
                answer.headers["Content-Length"] = str(total)  # pooch fails on other texts
                answer.raw.headers.pop("Content-Encoding", None)  # some servers add it to .gz files, which stay packed
                bar.total = total or self.size

            def write(block: bytes) -> None:
                file.write(block)
                bar.update(len(block))
                if self.size is not None and file.tell() > self.size:
                    problem = f"the server's file has at least {file.tell():,} bytes, expected {self.size:,}"
                    raise self.error(WrongFile, problem, "try later")

            fetch = pooch.HTTPDownloader(
                chunk_size=1 << 16,
                timeout=TIMEOUT_SECONDS,
                headers={"User-Agent": "rskip", "Accept-Encoding": "identity"},
                hooks={"response": check},
            )
            fetch(self.url, SimpleNamespace(write=write, flush=file.flush), None)


def _cause(error: BaseException) -> BaseException:
    """The innermost cause of an error of requests, without the connections that it passed through."""
    cause = next((each for each in error.args if isinstance(each, Exception)), error)
    while cause.__cause__ is not None:
        cause = cause.__cause__
    return cause
