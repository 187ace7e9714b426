"""Whether a file is the one that the registry means."""

from __future__ import annotations

from pathlib import Path

from rskip.files.checksum import sha256_file
from rskip.zoo.entry import ModelFile


def difference(path: Path, file: ModelFile) -> str | None:
    """In what the file at `path` is not `file`, as words that follow its name; None where it is, by size and sum.

    Its bytes are read every time: a damage that leaves size and date as they were is found too, and 10 MB take a few
    hundredths of a second.
    """
    if not path.is_file():
        return "is missing"
    size = path.stat().st_size
    if size != file.size:
        return f"has {size:,} bytes, expected {file.size:,}"
    found = sha256_file(path)
    if found != file.sha256:
        return f"has the sha256 {found}, expected {file.sha256}"
    return None
