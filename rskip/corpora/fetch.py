"""A corpus's upstream files, on this machine and verified."""

from __future__ import annotations

import os
from pathlib import Path

from rskip.checksum import sha256_file
from rskip.corpora.corpus import PublishedCorpus, UpstreamFile
from rskip.corpora.disk_space import disk_space
from rskip.corpora.download import download


def cache_folder() -> Path:
    """Where downloads are kept: $RSKIP_DATA, or ~/.cache/rskip/data."""
    return Path(os.environ.get("RSKIP_DATA") or "~/.cache/rskip/data").expanduser()


def fetch(corpus: PublishedCorpus, *, mirror: str | None = None) -> dict[UpstreamFile, Path]:
    """Fetches and verifies the files of a corpus; those that are in the cache already are only verified.

    :param mirror: a folder (read in place) or a base URL that holds the files under their own names.
    :returns: where each file lies.
    :raises FileNotFoundError: a file that the mirror or the server lacks.
    :raises ValueError: a file with a wrong sum.
    :raises OSError: the server can't be reached, or the disk of the cache is full.
    """
    files = corpus.upstream_files()
    if mirror is None:
        base = None
    elif mirror.startswith(("http://", "https://", "file://")):
        base = mirror.rstrip("/")
    elif "://" in mirror:
        raise ValueError(
            f"--mirror {mirror}: expected a folder, or an address that begins with http:// or https://"
        )
    else:
        return {file: _in_mirror(file, Path(mirror).expanduser()) for file in files}
    folder = cache_folder() / corpus.folder
    with disk_space(folder, advice="free some, or name another folder in RSKIP_DATA"):
        return {file: _in_cache(file, folder, f"{base}/{file.name}" if base else file.url) for file in files}


def _in_mirror(file: UpstreamFile, mirror: Path) -> Path:
    path = mirror / file.name
    if not mirror.is_dir():
        raise FileNotFoundError(f"no mirror folder {mirror}: expected one that holds {file.name}")
    if not path.is_file():
        raise FileNotFoundError(f"{file.name} is not in the mirror {mirror}: get it from {file.url}")
    received = sha256_file(path)
    if received != file.sha256:
        raise ValueError(
            f"{path}: wrong checksum: expected sha256 {file.sha256}, got {received}; "
            f"the file was left as it is: replace it by {file.url}"
        )
    return path


def _in_cache(file: UpstreamFile, folder: Path, url: str) -> Path:
    path = folder / file.name
    if path.exists() and sha256_file(path) != file.sha256:
        path.unlink()
    if not path.exists():
        download(url, path, sha256=file.sha256)
    return path
