"""A corpus's upstream files, on this machine and verified."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from rskip.corpora.corpus import UpstreamFile
from rskip.files.cache import (
    FetchedFile,
    cache_folder,
    expanded_path,
    file_or_packed,
    keep_metadata,
    unpack,
    unpacking_folder,
    verified,
)
from rskip.files.checksum import file_difference, sha256_file
from rskip.files.download import download
from rskip.files.whole import disk_space
from rskip.settings.errors import SettingError

__all__ = ["FetchedFile", "fetch"]

ADDRESSES = ("http://", "https://", "file://")

_Get = Callable[[UpstreamFile, threading.Event], FetchedFile]


def fetch(
    files: Sequence[UpstreamFile],
    *,
    folder: str,
    mirror: str | None = None,
    offline: bool = False,
    at_once: int = 4,
) -> dict[UpstreamFile, FetchedFile]:
    """Fetches and verifies files; those that are in the cache already are only verified.

    A file whose sum the registry lacks is taken as it comes. `rskip.files.cache.verified` says when a file is read
    again to be verified. If one file fails, those of the others stop, and continue from there the next time.

    :param folder: where they are cached, under `cache_folder()`.
    :param mirror: a folder (read in place; NAME.gz or NAME.xz may stand in for NAME) or a base URL that holds the files
        under their own names.
    :param offline: nothing is fetched: the files are in the mirror folder, or else in the cache.
    :param at_once: how many files.
    :returns: what became of each file, in the order of `files`.
    :raises FileNotFoundError: a file that the mirror, the server or, offline, the cache lacks.
    :raises ValueError: a file with a wrong size or sum.
    :raises OSError: the server can't be reached, or the disk of the cache is full.
    """
    if at_once < 1:
        raise ValueError(f"at_once={at_once}: expected at least 1 file at once")
    cache = cache_folder() / folder
    elsewhere = "set RSKIP_DATA to another folder"
    with disk_space(cache, advice=f"free some space, or {elsewhere}", elsewhere=elsewhere):
        if mirror is not None and not mirror.startswith(ADDRESSES):
            if "://" in mirror:
                expected = "a folder, or a URL that begins with http:// or https://"
                raise SettingError("mirror", f"is {mirror}", expected=expected)
            return _several_at_once(files, _from_folder(files, expanded_path(mirror, "mirror"), cache), at_once)
        return _several_at_once(files, _from_cache(files, cache) if offline else _from_web(mirror, cache), at_once)


def _several_at_once(files: Sequence[UpstreamFile], get: _Get, at_once: int) -> dict[UpstreamFile, FetchedFile]:
    """What `get` gives for each file. When one fails, the others are asked to stop, and its error is raised."""
    stop = threading.Event()
    with ThreadPoolExecutor(at_once) as threads:
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
    def get(file: UpstreamFile, stop: threading.Event) -> FetchedFile:
        path = cache / file.name
        if found := verified(path, url=file.url, size=file.size, sha256=file.sha256):
            return found
        url = f"{mirror.rstrip('/')}/{file.name}" if mirror else file.url
        download(url, path, size=file.size, sha256=file.sha256, otherwise="give another mirror", stop=stop)
        return keep_metadata(path, url=url, sha256=file.sha256)

    return get


def _from_cache(files: Sequence[UpstreamFile], cache: Path) -> _Get:
    """:raises FileNotFoundError: files are missing; names all of them."""
    missing = [file.name for file in files if not (cache / file.name).is_file()]
    if missing:
        raise FileNotFoundError(
            f"offline: {', '.join(missing)} not in the cache {cache}: run once online, "
            "or give a mirror folder that has them"
        )

    def get(file: UpstreamFile, stop: threading.Event) -> FetchedFile:
        path = cache / file.name
        found = verified(path, url=file.url, size=file.size, sha256=file.sha256)
        if found is None:
            wrong = file_difference(path, size=file.size, sha256=file.sha256) or "has changed since its download"
            raise ValueError(f"offline: {path} is damaged or of another version (it {wrong}): run once online")
        return found

    return get


def _from_folder(files: Sequence[UpstreamFile], folder: Path, cache: Path) -> _Get:
    """From a mirror folder, which is never written to. Its files are read in place; of packed ones, whose content is
    kept in the cache.

    :raises FileNotFoundError: no such folder, or files are missing; names all of them and where to get them.
    """
    if files and not folder.is_dir():
        raise FileNotFoundError(f"no mirror folder {folder}: expected one that holds {files[0].name}")
    unpacked = unpacking_folder(cache, folder)
    found = {file: path for file in files if (path := file_or_packed(folder, file.name))}
    if missing := [file for file in files if file not in found]:
        names = ", ".join(file.name for file in missing)
        urls = ", ".join(dict.fromkeys(file.url for file in missing))
        verb, pronoun = ("is", "it") if len(missing) == 1 else ("are", "them")
        raise FileNotFoundError(f"{names} {verb} not in the mirror {folder}: get {pronoun} from {urls}")

    def get(file: UpstreamFile, stop: threading.Event) -> FetchedFile:
        path = found[file]
        if path.name == file.name:
            if wrong := file_difference(path, size=file.size, sha256=file.sha256):
                raise ValueError(f"{path} {wrong}: replace it by {file.url}")
            return FetchedFile(path, path.stat().st_size, file.sha256 or sha256_file(path))
        return unpack(path, unpacked / file.name, url=file.url, size=file.size, sha256=file.sha256)

    return get
