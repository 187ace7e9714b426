"""Downloads and verifies a corpus's upstream files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rskip.corpora.corpus import UpstreamFile
from rskip.files.cache import (
    ADDRESSES,
    FetchedFile,
    cache_folder,
    downloaded,
    expanded_path,
    file_or_packed,
    unpack,
    unpacking_folder,
    verified,
)
from rskip.files.checksum import file_difference, sha256_file
from rskip.settings.errors import SettingError


def fetch(
    files: Sequence[UpstreamFile],
    *,
    folder: str,
    mirror: str | None = None,
    offline: bool = False,
) -> dict[UpstreamFile, FetchedFile]:
    """Downloads and verifies files. Files in the cache are only verified.

    A file without a checksum in the registry is accepted unverified.

    :param folder: their folder in the cache, under `cache_folder()`.
    :param mirror: a folder or a base URL with the files under their own names. A folder is read in place, and NAME.gz
        or NAME.xz may replace NAME.
    :param offline: download nothing; the files must be in the mirror folder or in the cache.
    :returns: the result for each file, in the order of `files`.
    :raises FileNotFoundError: the mirror, the server or (offline) the cache lacks a file.
    :raises ValueError: a file has a wrong size or checksum.
    :raises OSError: the server can't be reached, or the cache's disk is full.
    """
    cache = cache_folder() / folder
    if mirror is not None and not mirror.startswith(ADDRESSES):
        if "://" in mirror:
            raise SettingError.of_value("mirror", mirror, "a folder, or a URL that begins with http:// or https://")
        return _of_folder(files, expanded_path(mirror, "mirror"), cache)
    missing = [file.name for file in files if not (cache / file.name).is_file()]
    if offline and missing:
        raise FileNotFoundError(
            f"offline: {', '.join(missing)} not in the cache {cache}: run once online, or give a mirror folder"
        )
    otherwise = "give another --mirror" if mirror else "give a folder or URL that has the file (--mirror)"
    fetched = {}
    for file in dict.fromkeys(files):
        path = cache / file.name
        if (found := verified(path, size=file.size, sha256=file.sha256)) is None:
            if offline:
                wrong = file_difference(path, size=file.size, sha256=file.sha256) or "has changed since its download"
                raise ValueError(f"offline: {path} {wrong}: run once online, or give a mirror folder")
            from rskip.files.download import download  # needs an extra

            url = f"{mirror.rstrip('/')}/{file.name}" if mirror else file.url
            download(url, path, size=file.size, sha256=file.sha256, otherwise=otherwise)
            found = downloaded(path, sha256=file.sha256)
        fetched[file] = found
    return fetched


def _of_folder(files: Sequence[UpstreamFile], folder: Path, cache: Path) -> dict[UpstreamFile, FetchedFile]:
    """Reads the files of a mirror folder in place. A packed file is unpacked into the cache."""
    paths = {file: file_or_packed(folder, file.name) for file in files}
    if missing := [file for file, path in paths.items() if path is None]:
        if not folder.is_dir():
            raise FileNotFoundError(f"no mirror folder {folder}: expected one that holds {missing[0].name}")
        names, urls = ", ".join(file.name for file in missing), ", ".join(dict.fromkeys(file.url for file in missing))
        raise FileNotFoundError(f"the mirror {folder} lacks {names}: get from {urls}")
    fetched = {}
    for file, path in paths.items():
        assert path is not None
        if path.name != file.name:
            unpacked = unpacking_folder(cache, folder) / file.name
            fetched[file] = unpack(path, unpacked, url=file.url, size=file.size, sha256=file.sha256)
            continue
        if wrong := file_difference(path, size=file.size, sha256=file.sha256):
            raise ValueError(f"{path} {wrong}: replace it with {file.url}")
        fetched[file] = FetchedFile(path, path.stat().st_size, file.sha256 or sha256_file(path))
    return fetched
