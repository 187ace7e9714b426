"""Files from the web: retried, resumed, checked, and whole or not there."""

from __future__ import annotations

import fcntl
import http.client
import ssl
import time
import urllib.error
import urllib.request
from pathlib import Path

from tqdm import tqdm

from rskip.checksum import sha256_file

BLOCK = 1 << 16
TIMEOUT_SECONDS = 60
BUSY = (408, 425, 429, 500, 502, 503, 504)  # HTTP statuses that are worth another attempt
BROKEN_CONNECTION = (
    urllib.error.URLError,
    http.client.HTTPException,
    ConnectionError,
    TimeoutError,
    ssl.SSLError,
)


class CutShort(Exception):
    """The connection ended before the file did."""


def download(url: str, target: Path, *, sha256: str, attempts: int = 5, first_wait: float = 1.0) -> None:
    """Fetches `url` into `target`, which appears only when it is whole and its sum is right.

    What an interrupted download received stays in `<target>.partial`, and the next one goes on from there
    where the server allows it (HTTP Range).

    :param attempts: how often a connection that fails is tried.
    :param first_wait: seconds before the second attempt; each further wait is twice as long.
    :raises FileNotFoundError: the server has no such file.
    :raises ValueError: the file's sum is wrong; the file is removed.
    :raises OSError: every attempt failed; what was received is kept.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(target.name + ".partial")
    with partial.open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # a second process waits here for the first
        if target.exists():
            partial.unlink(missing_ok=True)
            return
        resumed = partial.stat().st_size > 0
        _receive(url, partial, attempts=attempts, first_wait=first_wait)
        if resumed and sha256_file(partial) != sha256:
            # What was there may have been the beginning of another version.
            _truncate(partial)
            _receive(url, partial, attempts=attempts, first_wait=first_wait)
        received = sha256_file(partial)
        if received != sha256:
            partial.unlink()
            raise ValueError(
                f"{url}: wrong checksum: expected sha256 {sha256}, got {received}; the file was removed: "
                "try again, or use another --mirror"
            )
        partial.replace(target)


def _receive(url: str, partial: Path, *, attempts: int, first_wait: float) -> None:
    """Fetches what `partial` lacks, in several attempts."""
    for attempt in range(attempts):
        if attempt:
            time.sleep(first_wait * 2 ** (attempt - 1))
        try:
            return _receive_once(url, partial)
        except urllib.error.HTTPError as error:
            if error.code not in BUSY:
                raise FileNotFoundError(
                    f"{url}: the server says {error.code} {error.reason}: check the address, or give --mirror"
                ) from error
            reason: Exception = error
        except (*BROKEN_CONNECTION, CutShort) as error:
            reason = error
    raise OSError(
        f"{url}: download failed in {attempts} attempts ({reason}): run it again to go on from "
        "what was received, or give --mirror"
    )


def _receive_once(url: str, partial: Path) -> None:
    """One request for the bytes from `partial`'s end on."""
    start = partial.stat().st_size
    request = urllib.request.Request(url, headers={"User-Agent": "rskip"})
    if start:
        request.add_header("Range", f"bytes={start}-")
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        if start and error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            _truncate(partial)
            raise CutShort("what was received does not fit the server's file") from error
        raise
    with response:
        content_range = response.headers.get("Content-Range", "")
        if start and not content_range.startswith(f"bytes {start}-"):
            _truncate(partial)
            start = 0
        length = response.headers.get("Content-Length")
        target_name = partial.name.removesuffix(".partial")
        total = start + int(length) if length is not None else None
        with (
            partial.open("ab") as file,
            tqdm(
                total=total, initial=start, desc=target_name, unit="B", unit_scale=True, disable=None
            ) as bar,
        ):
            while block := response.read(BLOCK):
                file.write(block)
                bar.update(len(block))
    size = partial.stat().st_size
    if total is not None and size < total:
        raise CutShort(f"the connection ended after {size:,} of {total:,} bytes")


def _truncate(path: Path) -> None:
    with path.open("wb"):
        pass
