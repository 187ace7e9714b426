"""Upstream files from a folder that holds them under their own names, or packed."""

from __future__ import annotations

import gzip
import hashlib
import lzma
import shutil
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rskip.corpora.corpus import UpstreamFile
from rskip.corpora.received import FetchedFile, new_receipt, read_receipt, verify, write_receipt
from rskip.files.checksum import sha256_file
from rskip.files.lock import one_at_a_time
from rskip.files.whole import atomic_file

PACKED = (".gz", ".xz")
"""In place of NAME there may be NAME.gz or NAME.xz."""


class MirrorFolder:
    """A folder of upstream files.

    :param path: it is never written to.
    :param cache: where the content of packed files is kept.
    """

    def __init__(self, path: Path, *, cache: Path) -> None:
        self.path = path
        self.cache = cache / "unpacked" / hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]

    def require(self, files: Sequence[UpstreamFile]) -> None:
        """:raises FileNotFoundError: no such folder, or files are missing; names all of them and where to get them."""
        if files and not self.path.is_dir():
            raise FileNotFoundError(f"no mirror folder {self.path}: expected one that holds {files[0].name}")
        missing = [file for file in files if self._find(file) is None]
        if missing:
            names = ", ".join(file.name for file in missing)
            urls = ", ".join(file.url for file in missing)
            verb, pronoun = ("is", "it") if len(missing) == 1 else ("are", "them")
            raise FileNotFoundError(f"{names} {verb} not in the mirror {self.path}: get {pronoun} from {urls}")

    def get(self, file: UpstreamFile) -> FetchedFile:
        """The file, read in place; or its content in the cache where the folder has it packed.

        A file of the mirror is held against the registry, never against what came from elsewhere before.

        :raises FileNotFoundError: it is missing.
        :raises ValueError: its size or sum is wrong, or the packed file is damaged.
        """
        self.require([file])
        found = self._find(file)
        assert found is not None
        if found.name == file.name:
            return _checked(found, file, described=str(found))
        return self._unpacked(found, file)

    def _find(self, file: UpstreamFile) -> Path | None:
        candidates = (self.path / (file.name + suffix) for suffix in ("", *PACKED))
        return next((path for path in candidates if path.is_file()), None)

    def _unpacked(self, packed: Path, file: UpstreamFile) -> FetchedFile:
        path = self.cache / file.name
        status = packed.stat()
        version = f"{packed.name}, {status.st_size} bytes, modified {status.st_mtime_ns}"
        with one_at_a_time(path):
            receipt = read_receipt(path)
            if receipt is None or receipt.version != version or verify(path, file) is None:
                _unpack(packed, path)
                checked = _checked(path, file, described=f"{packed}, unpacked")
                write_receipt(path, new_receipt(path, url=packed.as_uri(), sha256=checked.sha256, version=version))
                return checked
            return FetchedFile(path, receipt.size, receipt.sha256)


def _unpack(packed: Path, path: Path) -> None:
    opener: Callable[[Path], Any] = gzip.open if packed.suffix == ".gz" else lzma.open
    try:
        with opener(packed) as source, atomic_file(path) as temporary, temporary.open("wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
    except (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError) as error:
        raise ValueError(f"{packed} is damaged or cut short ({error}): replace it by a whole one") from error


def _checked(path: Path, file: UpstreamFile, *, described: str) -> FetchedFile:
    size, received = path.stat().st_size, sha256_file(path)
    if file.sha256 not in (None, received):
        wrong = f"wrong checksum: expected sha256 {file.sha256}, got {received}"
    elif file.size not in (None, size):
        wrong = f"wrong size: expected {file.size:,} bytes, got {size:,}"
    else:
        return FetchedFile(path, size, received)
    raise ValueError(f"{described}: {wrong}; the file was left as it is: replace it by {file.url}")
