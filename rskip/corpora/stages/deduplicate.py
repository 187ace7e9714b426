"""Drops every pair that occurs earlier in its chunk or in an earlier chunk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from rskip.corpora.chunks import Chunk
from rskip.corpora.cleaning import DUPLICATE, CleaningReport, find_duplicates
from rskip.corpora.corpus import Pair
from rskip.corpora.record import write_json
from rskip.corpora.stages.setting import Setting
from rskip.corpora.stages.tokenise import DIGESTS, REPORTS, WORDS
from rskip.extras import extra
from rskip.files.whole import atomic_file

with extra("translation", what="a corpus of text"):
    import numpy as np
    from numpy.typing import NDArray

DUPLICATES, CLEANED = "duplicates.npz", "cleaned.json"


@dataclass(frozen=True, kw_only=True)
class KeptChunk:
    """The remaining pairs of a tokenised chunk.

    :param number: number of the chunk within train, from 0.
    :param dropped: the numbers of the dropped lines, from 0.
    :param start: number of remaining pairs in earlier chunks; size: in this chunk.
    """

    name: str
    number: int
    dropped: NDArray[np.int64] = field(repr=False, compare=False)
    start: int
    size: int

    def lines(self, path: Path) -> Iterator[str]:
        """The remaining lines of one side's words, without line ends."""
        dropped = set(self.dropped.tolist())
        with path.open(encoding="utf-8", newline="\n") as file:
            for row, line in enumerate(file):
                if row not in dropped:
                    yield line.removesuffix("\n")


def deduplicate(setting: Setting, chunks: Sequence[Chunk]) -> tuple[list[KeptChunk], CleaningReport]:
    """The remaining pairs of each chunk, and the report of all dropped pairs.

    :raises ValueError: no pair remains.
    """
    reports, done = setting.work.folder(REPORTS), setting.work.path / CLEANED
    duplicates = _duplicates(setting, chunks)
    kept_chunks: list[KeptChunk] = []
    total = CleaningReport.of(setting.cleaning)
    start = 0
    for chunk, dropped in zip(chunks, duplicates, strict=True):
        report = CleaningReport.read(reports / f"{chunk.name}.json")
        if len(dropped):
            report.drop_duplicates(chunk.text, len(dropped))
            if not done.exists():  # afterwards later stages may have removed the words
                report.show(DUPLICATE, _example(setting, chunk, int(dropped[0])))
        total += report
        kept = report.kept()
        kept_chunks.append(KeptChunk(name=chunk.name, number=chunk.number, dropped=dropped, start=start, size=kept))
        start += kept
    if not start:
        raise ValueError(f"no training pairs are left: cleaning dropped all {total.pairs():,} pairs")
    if not done.exists():
        write_json(done, total.to_dict())
    return kept_chunks, CleaningReport.read(done)


def _duplicates(setting: Setting, chunks: Sequence[Chunk]) -> list[NDArray[np.int64]]:
    """The rows to drop in each chunk."""
    if not setting.cleaning.duplicates:
        return [np.empty(0, dtype=np.int64)] * len(chunks)
    done = setting.work.path / DUPLICATES
    if not done.exists():
        digests = setting.work.folder(DIGESTS)
        with atomic_file(done) as temporary:
            np.savez(temporary, *find_duplicates([digests / chunk.name for chunk in chunks]))
    with np.load(done) as rows:
        return [rows[f"arr_{number}"] for number in range(len(chunks))]


def _example(setting: Setting, chunk: Chunk, row: int) -> Pair:
    """The words of one row of a chunk."""
    sides = []
    for path in setting.sides(WORDS, chunk.name):
        with path.open(encoding="utf-8", newline="\n") as lines:
            sides.append(next(islice(lines, row, None)))
    return sides[0], sides[1]
