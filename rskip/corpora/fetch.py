"""Downloads and verifies a corpus's upstream files."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
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

AT_ONCE = 4  # downloads


def fetch(
    files: Sequence[UpstreamFile],
    *,
    folder: str,
    mirror: str | None = None,
    offline: bool = False,
) -> dict[UpstreamFile, FetchedFile]:
    """Downloads and verifies files. Files in the cache are only verified.

    A file without a checksum in the registry is accepted unverified. If one download fails, the others stop.

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
        place = expanded_path(mirror, "mirror")
        _refuse_missing([file for file in files if not file_or_packed(place, file.name)], place)
        return _fetched(files, lambda file, _: _from_folder(file, place, cache))
    missing = [file.name for file in files if not (cache / file.name).is_file()]
    if offline and missing:
        raise FileNotFoundError(
            f"offline: {', '.join(missing)} not in the cache {cache}: run once online, or give a mirror folder"
        )
    otherwise = "give another --mirror" if mirror else "give a folder or URL that has the file (--mirror)"

    def get(file: UpstreamFile, stop: threading.Event) -> FetchedFile:
        path = cache / file.name
        if found := verified(path, size=file.size, sha256=file.sha256):
            return found
        if offline:
            wrong = file_difference(path, size=file.size, sha256=file.sha256) or "has changed since its download"
            raise ValueError(f"offline: {path} {wrong}: run once online, or give a mirror folder")
        from rskip.files.download import download  # needs an extra

        url = f"{mirror.rstrip('/')}/{file.name}" if mirror else file.url
        download(url, path, size=file.size, sha256=file.sha256, otherwise=otherwise, stop=stop)
        return downloaded(path, sha256=file.sha256)

    return _fetched(files, get)


def _fetched(
    files: Sequence[UpstreamFile], get: Callable[[UpstreamFile, threading.Event], FetchedFile]
) -> dict[UpstreamFile, FetchedFile]:
    """The result of `get` for each file, in threads. After an error, the event tells the others to stop."""
    stop = threading.Event()
    with ThreadPoolExecutor(AT_ONCE) as threads:
        results = {file: threads.submit(get, file, stop) for file in dict.fromkeys(files)}
        try:
            for result in as_completed(results.values()):
                result.result()
        except BaseException:
            stop.set()
            threads.shutdown(cancel_futures=True)
            raise
    return {file: result.result() for file, result in results.items()}


def _refuse_missing(missing: Sequence[UpstreamFile], folder: Path) -> None:
    """:raises FileNotFoundError: files are missing in a mirror folder. The error names them and their sources."""
    if missing and not folder.is_dir():
        raise FileNotFoundError(f"no mirror folder {folder}: expected one that holds {missing[0].name}")
    if missing:
        names, urls = ", ".join(file.name for file in missing), ", ".join(dict.fromkeys(file.url for file in missing))
        raise FileNotFoundError(f"the mirror {folder} lacks {names}: get from {urls}")


def _from_folder(file: UpstreamFile, folder: Path, cache: Path) -> FetchedFile:
    """Reads a file of a mirror folder in place. A packed file is unpacked into the cache."""
    path = file_or_packed(folder, file.name)
    assert path is not None
    if path.name != file.name:
        unpacked = unpacking_folder(cache, folder) / file.name
        return unpack(path, unpacked, url=file.url, size=file.size, sha256=file.sha256)
    if wrong := file_difference(path, size=file.size, sha256=file.sha256):
        raise ValueError(f"{path} {wrong}: replace it with {file.url}")
    return FetchedFile(path, path.stat().st_size, file.sha256 or sha256_file(path))
