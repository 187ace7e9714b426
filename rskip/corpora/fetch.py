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

_Get = Callable[[UpstreamFile, threading.Event], FetchedFile]


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
        return _several_at_once(files, _from_folder(files, expanded_path(mirror, "mirror"), cache))
    return _several_at_once(files, _from_cache(files, cache) if offline else _from_web(mirror, cache))


def _several_at_once(files: Sequence[UpstreamFile], get: _Get) -> dict[UpstreamFile, FetchedFile]:
    """The results of `get` for all files. When one fails, the others are asked to stop, and its error is raised."""
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


def _from_web(mirror: str | None, cache: Path) -> _Get:
    otherwise = "give another --mirror" if mirror else "give a folder or URL that has the file (--mirror)"

    def get(file: UpstreamFile, stop: threading.Event) -> FetchedFile:
        path = cache / file.name
        if found := verified(path, size=file.size, sha256=file.sha256):
            return found
        from rskip.files.download import download  # needs an extra

        url = f"{mirror.rstrip('/')}/{file.name}" if mirror else file.url
        download(url, path, size=file.size, sha256=file.sha256, otherwise=otherwise, stop=stop)
        return downloaded(path, sha256=file.sha256)

    return get


def _from_cache(files: Sequence[UpstreamFile], cache: Path) -> _Get:
    """:raises FileNotFoundError: files are missing. The error names all of them."""
    missing = [file.name for file in files if not (cache / file.name).is_file()]
    if missing:
        raise FileNotFoundError(
            f"offline: {', '.join(missing)} not in the cache {cache}: run once online, "
            "or give a mirror folder that has them"
        )

    def get(file: UpstreamFile, stop: threading.Event) -> FetchedFile:
        path = cache / file.name
        found = verified(path, size=file.size, sha256=file.sha256)
        if found is None:
            wrong = file_difference(path, size=file.size, sha256=file.sha256) or "has changed since its download"
            raise ValueError(f"offline: {path} is damaged or from another version (it {wrong}): run once online")
        return found

    return get


def _from_folder(files: Sequence[UpstreamFile], folder: Path, cache: Path) -> _Get:
    """Reads files from a mirror folder in place. Packed files are unpacked into the cache.

    :raises FileNotFoundError: the folder does not exist, or files are missing. The error names them and their sources.
    """
    if files and not folder.is_dir():
        raise FileNotFoundError(f"no mirror folder {folder}: expected one that holds {files[0].name}")
    unpacked = unpacking_folder(cache, folder)
    found = {file: path for file in files if (path := file_or_packed(folder, file.name))}
    if missing := [file for file in files if file not in found]:
        names = ", ".join(file.name for file in missing)
        urls = ", ".join(dict.fromkeys(file.url for file in missing))
        verb, pronoun = ("is", "it") if len(missing) == 1 else ("are", "them")
        where = sorted(path for path in folder.iterdir() if all(file_or_packed(path, file.name) for file in missing))
        nearby = f"give its subfolder {where[0]}, or " if where else ""
        raise FileNotFoundError(f"{names} {verb} not in the mirror {folder}: {nearby}get {pronoun} from {urls}")

    def get(file: UpstreamFile, stop: threading.Event) -> FetchedFile:
        path = found[file]
        if path.name == file.name:
            if wrong := file_difference(path, size=file.size, sha256=file.sha256):
                raise ValueError(f"{path} {wrong}: replace it with {file.url}")
            return FetchedFile(path, path.stat().st_size, file.sha256 or sha256_file(path))
        return unpack(path, unpacked / file.name, url=file.url, size=file.size, sha256=file.sha256)

    return get
