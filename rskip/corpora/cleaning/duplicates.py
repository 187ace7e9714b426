"""Finds exact duplicates among more pairs than fit into memory."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from rskip.corpora.corpus import Pair
from rskip.machine.extras import extra

with extra("translation", what="a corpus of text"):
    import numpy as np
    from numpy.typing import NDArray

DIGEST_BYTES = 16
PAIRS_AT_ONCE = 1 << 20
MAX_PARTITIONS = 256  # files that are open at the same time; their numbers fit into a byte, which sorts fastest

_DIGEST = np.dtype([("first", "<u8"), ("second", "<u8")])
_PLACED_DIGEST = np.dtype([*_DIGEST.descr, ("place", "<u8")])  # place: number of the pair over all chunks
_ROW = np.dtype("<u4")


def pair_digest(words: Pair) -> bytes:
    """The pair's digest of 16 bytes (BLAKE2b). Different pairs practically never share a digest.

    :param words: both sides, without line feeds.
    """
    return hashlib.blake2b("\n".join(words).encode(), digest_size=DIGEST_BYTES).digest()


def find_duplicates(digest_files: Sequence[Path], folder: Path, *, pairs_at_once: int = PAIRS_AT_ONCE) -> list[Path]:
    """Finds every pair that equals an earlier one, in an earlier file or an earlier row of the same file.

    The digests are distributed over temporary files by some of their bits, so equal ones are in the same file. Each
    file is sorted in memory. This needs one process, a few dozen MB for any number of pairs, and one byte per pair.
    `folder` is written atomically. If it exists, it is the result of an earlier call with the same files. Leftovers
    of a killed call are removed.

    :param digest_files: one file per chunk, in the order of the chunks, with the `pair_digest` of each pair.
    :param folder: the folder for the result.
    :param pairs_at_once: approximate number of pairs that are sorted at the same time.
    :returns: a file in `folder` for each digest file, with the rows to drop, for `read_rows`.
    :raises ValueError: a digest file is truncated.
    """
    answers = [folder / f"{number:06d}.rows" for number in range(len(digest_files))]
    if folder.is_dir():
        return answers
    building = folder.with_name(folder.name + ".partial")
    if building.exists():
        shutil.rmtree(building)
    building.mkdir(parents=True)
    starts = _starts(digest_files)
    repeated = np.zeros(starts[-1], dtype=bool)
    for path in _partition(digest_files, starts, building, pairs_at_once=pairs_at_once):
        repeated[_repeated_places(path)] = True
        path.unlink()
    for answer, start, end in zip(answers, starts, starts[1:], strict=False):
        rows = np.flatnonzero(repeated[start:end])
        (building / answer.name).write_bytes(rows.astype(_ROW).tobytes())
    building.rename(folder)
    return answers


def read_rows(path: Path) -> NDArray[np.uint32]:
    """The rows of a chunk that are to be dropped: ascending positions in its digest file, from 0."""
    return np.fromfile(path, dtype=_ROW)


def _starts(digest_files: Sequence[Path]) -> list[int]:
    """The number over all chunks of each file's first pair, then the number of all pairs."""
    starts = [0]
    for path in digest_files:
        pairs, rest = divmod(path.stat().st_size, DIGEST_BYTES)
        if rest:
            raise ValueError(f"{path} is damaged: {rest} bytes follow {pairs:,} digests: remove it and run again")
        starts.append(starts[-1] + pairs)
    return starts


def _partition(
    digest_files: Sequence[Path], starts: Sequence[int], folder: Path, *, pairs_at_once: int
) -> Iterator[Path]:
    """Files of digests with their places, in ascending order of place. Equal digests are in the same file."""
    count = 1
    while count < MAX_PARTITIONS and count * pairs_at_once < starts[-1]:
        count *= 2
    paths = [folder / f"{number}.digests" for number in range(count)]
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(path.open("wb")) for path in paths]
        for path, start in zip(digest_files, starts, strict=False):
            digests = np.fromfile(path, dtype=_DIGEST)
            placed = np.empty(len(digests), dtype=_PLACED_DIGEST)
            placed["first"], placed["second"] = digests["first"], digests["second"]
            placed["place"] = np.arange(start, start + len(digests), dtype=np.uint64)
            partition = (digests["first"] % np.uint64(count)).astype(np.uint8)
            placed = placed[np.argsort(partition, kind="stable")]
            ends = np.cumsum(np.bincount(partition, minlength=count))
            for file, part in zip(files, np.split(placed, ends[:-1]), strict=True):
                file.write(part.tobytes())
    yield from paths


def _repeated_places(path: Path) -> NDArray[np.uint64]:
    """The places of the digests in this file that occurred before."""
    placed = np.fromfile(path, dtype=_PLACED_DIGEST)
    # a stable sort leaves equal digests in the order of their places
    placed = placed[np.lexsort((placed["second"], placed["first"]))]
    earlier, later = placed[:-1], placed[1:]
    equal = (earlier["first"] == later["first"]) & (earlier["second"] == later["second"])
    return later["place"][equal]
