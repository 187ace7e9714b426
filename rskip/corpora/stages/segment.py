"""Segments words into subword units, chunk by chunk in several processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from rskip.corpora.record import write_json
from rskip.corpora.stages.deduplicate import KeptChunk
from rskip.corpora.stages.learn import TEXT
from rskip.corpora.stages.setting import Setting, progress
from rskip.corpora.stages.tokenise import WORDS, write_lines
from rskip.machine.workers import in_order
from rskip.text.pipeline import TextPipeline

TOKENS, COUNTS = "tokens", "counts"


def segment_held_out(setting: Setting, pipeline: TextPipeline, split: str) -> None:
    """Writes the tokens of a split that is not cleaned."""
    words, tokens = (setting.sides(setting.work.folder(name), split) for name in (WORDS, TOKENS))
    for source, target in zip(words, tokens, strict=True):
        if not target.exists():
            with source.open(encoding="utf-8", newline="\n") as file:
                write_lines(target, [pipeline.segment(line.removesuffix("\n")) for line in file])


def segment_train(setting: Setting, chunks: Sequence[KeptChunk]) -> None:
    """Writes each chunk's tokens and their counts, then removes its words."""
    counts = setting.work.folder(COUNTS)
    left = [chunk for chunk in chunks if not (counts / f"{chunk.name}.json").exists()]
    if not left:
        return
    job = Segment(
        text=setting.work.folder(TEXT),
        words=setting.work.folder(WORDS),
        tokens=setting.work.folder(TOKENS),
        counts=counts,
        languages=setting.languages,
        bpe_dropout=setting.options.bpe_dropout,
    )
    with (
        progress("segment", chunks, left) as bar,
        closing(in_order(job, left, workers=setting.processes(len(left)))) as sizes,
    ):
        for size in sizes:
            bar.update(size)


@dataclass(frozen=True, kw_only=True)
class Segment:
    """Writes one chunk's files. The counts come last: if they exist, all files are complete.

    :param bpe_dropout: probability of skipping a merge. The chunk's number is the seed, so the number and order of
        workers do not change the result.
    """

    text: Path
    words: Path
    tokens: Path
    counts: Path
    languages: tuple[str, str]
    bpe_dropout: float

    @cached_property
    def _pipeline(self) -> TextPipeline:
        return TextPipeline.load(self.text)

    def __call__(self, chunk: KeptChunk) -> int:
        """:returns: the number of pairs in the chunk."""
        names = [f"{chunk.name}.{language}" for language in self.languages]
        counts: Counter[str] = Counter()
        segment: Callable[[str], str] = self._pipeline.segment
        if self.bpe_dropout:
            segment = self._pipeline.segment_with_dropout(self.bpe_dropout, seed=chunk.number)
        for name in names:
            lines = [segment(line) for line in chunk.lines(self.words / name)]
            for line in lines:
                counts.update(line.split())
            write_lines(self.tokens / name, lines)
        write_json(self.counts / f"{chunk.name}.json", counts)
        for name in names:
            (self.words / name).unlink()
        return chunk.size
