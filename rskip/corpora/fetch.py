"""A corpus's upstream files, on this machine and verified."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from rskip.corpora.corpus import UpstreamFile
from rskip.corpora.mirror_folder import MirrorFolder
from rskip.corpora.received import FetchedFile, expected_sum, new_receipt, receipt_path, verify, write_receipt
from rskip.files.cache import cache_folder, expanded_path
from rskip.files.disk import disk_space
from rskip.files.download import download
from rskip.files.lock import one_at_a_time

__all__ = ["FetchedFile", "fetch"]

ADDRESSES = ("http://", "https://", "file://")


def fetch(
    files: Sequence[UpstreamFile],
    *,
    folder: str,
    mirror: str | None = None,
    offline: bool = False,
    at_once: int = 4,
) -> dict[UpstreamFile, FetchedFile]:
    """Fetches and verifies files; those that are in the cache already are only verified.

    A file whose sum the registry lacks is taken as it comes the first time. Its size and sum are kept beside it, in
    NAME.json, and from then on it must be the same. `rskip.corpora.received.verify` says when a file is read again
    to be verified. If one file fails, the downloads of the others stop, and go on from there the next time.

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
    elsewhere = "name another folder in RSKIP_DATA"
    with disk_space(cache, advice=f"free some, or {elsewhere}", elsewhere=elsewhere):
        if mirror is not None and not mirror.startswith(ADDRESSES):
            if "://" in mirror:
                raise ValueError(
                    f"--mirror {mirror}: expected a folder, or an address that begins with http:// or https://"
                )
            mirror_folder = MirrorFolder(expanded_path(mirror, "--mirror"), cache=cache)
            mirror_folder.require(files)
            return _several_at_once(files, lambda file, stop: mirror_folder.get(file), at_once=at_once)
        if offline:
            _require_cached(files, cache)
            return _several_at_once(files, lambda file, stop: _from_cache(file, cache), at_once=at_once)

        def get(file: UpstreamFile, stop: threading.Event) -> FetchedFile:
            return _into_cache(file, cache, f"{mirror.rstrip('/')}/{file.name}" if mirror else file.url, stop)

        return _several_at_once(files, get, at_once=at_once)


def _several_at_once(
    files: Sequence[UpstreamFile],
    get: Callable[[UpstreamFile, threading.Event], FetchedFile],
    *,
    at_once: int,
) -> dict[UpstreamFile, FetchedFile]:
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


def _require_cached(files: Sequence[UpstreamFile], cache: Path) -> None:
    missing = [file.name for file in files if not (cache / file.name).is_file()]
    if missing:
        raise FileNotFoundError(
            f"--offline: {', '.join(missing)} not in the cache {cache}: run once without --offline, "
            "or give --mirror a folder that has what is missing"
        )


def _from_cache(file: UpstreamFile, cache: Path) -> FetchedFile:
    path = cache / file.name
    found = verify(path, file)
    if found is None:
        sha256 = expected_sum(path, file)
        expected = f"sha256 {sha256}" if sha256 else f"{file.size:,} bytes"
        raise ValueError(
            f"--offline: {path} is damaged, or another version (expected {expected}): "
            "run once without --offline to fetch it again"
        )
    return found


def _into_cache(file: UpstreamFile, cache: Path, url: str, stop: threading.Event) -> FetchedFile:
    path = cache / file.name
    if found := verify(path, file):
        return found
    with one_at_a_time(path):
        if found := verify(path, file):
            return found  # another process has fetched it meanwhile
        expected = expected_sum(path, file)
        try:
            received = download(url, path, size=file.size, sha256=expected, stop=stop)
        except ValueError as error:
            if expected is None or expected == file.sha256:
                raise
            kept = receipt_path(path)
            raise ValueError(f"{error}; or remove {kept} if upstream's file has changed since it first came") from error
        write_receipt(path, new_receipt(path, url=url, sha256=received))
        return FetchedFile(path, path.stat().st_size, received)
