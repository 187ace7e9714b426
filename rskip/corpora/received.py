"""What is known of files that are here: their size and sum, checked, and kept beside each in NAME.json."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from rskip.corpora.corpus import UpstreamFile
from rskip.files.checksum import sha256_file
from rskip.files.whole import atomic_file

ALWAYS_SUMMED = 64 << 20
"""Files up to so many bytes are summed whenever they are verified; it takes a fraction of a second."""


@dataclass(frozen=True)
class FetchedFile:
    """A file on this machine, verified."""

    path: Path
    size: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """What a file was when it came.

    :param url: where it came from.
    :param version: how its origin told its versions apart; "" where it didn't.
    :param date: when it came, UTC.
    :param modified: the file's modification time in nanoseconds when its sum was last computed.
    """

    url: str
    version: str
    size: int
    sha256: str
    date: str
    modified: int


def verify(path: Path, file: UpstreamFile) -> FetchedFile | None:
    """The file at `path`, if it is `file` as the registry knows it, or else as it was when it first came.

    A large file (over `ALWAYS_SUMMED`) whose size and modification time are those of its receipt is not read again.
    What damages a file without changing either is then not found here, but by the checksum that gzip, zip and xz files
    carry, when they are unpacked. Without a receipt, and where the registry has no sum either, the file is taken as
    it is, and what it is becomes its receipt.

    :returns: None where there is no such file, or another one.
    """
    if not path.is_file():
        return None
    status = path.stat()
    receipt = read_receipt(path)
    expected = _expected_sum(file, receipt)
    if file.size is not None and status.st_size != file.size:
        return None
    untouched = receipt is not None and (receipt.size, receipt.modified) == (status.st_size, status.st_mtime_ns)
    if receipt is not None and untouched and status.st_size > ALWAYS_SUMMED:
        received = receipt.sha256
    else:
        received = sha256_file(path)
    if expected is not None and received != expected:
        return None
    if receipt is None or not untouched or receipt.sha256 != received:
        # a cache that this user may only read is good enough to be used
        with contextlib.suppress(OSError):
            if receipt is not None and receipt.sha256 == received:
                write_receipt(path, dataclasses.replace(receipt, modified=status.st_mtime_ns))
            else:
                write_receipt(path, new_receipt(path, url=file.url, sha256=received))
    return FetchedFile(path, status.st_size, received)


def expected_sum(path: Path, file: UpstreamFile) -> str | None:
    """The sum that `path` must have: the registry's, or else its receipt's; None: it never came."""
    return _expected_sum(file, read_receipt(path))


def _expected_sum(file: UpstreamFile, receipt: Receipt | None) -> str | None:
    return file.sha256 or (receipt.sha256 if receipt else None)


def receipt_path(path: Path) -> Path:
    """NAME.json beside the file NAME."""
    return path.with_name(path.name + ".json")


def new_receipt(path: Path, *, url: str, sha256: str, version: str = "") -> Receipt:
    """The receipt of a file that came just now."""
    status = path.stat()
    return Receipt(
        url=url,
        version=version,
        size=status.st_size,
        sha256=sha256,
        date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        modified=status.st_mtime_ns,
    )


def write_receipt(path: Path, receipt: Receipt) -> None:
    with atomic_file(receipt_path(path)) as temporary:
        temporary.write_text(json.dumps(dataclasses.asdict(receipt), indent=2) + "\n", encoding="utf-8")


def read_receipt(path: Path) -> Receipt | None:
    """The receipt of the file at `path`; None where there is none.

    :raises ValueError: it is damaged.
    """
    kept = receipt_path(path)
    try:
        return Receipt(**json.loads(kept.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (TypeError, ValueError) as error:
        raise ValueError(f"{kept} is damaged ({error}): remove it, and {path.name} is fetched again") from error
