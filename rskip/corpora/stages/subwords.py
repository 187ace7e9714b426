"""Learns subword units from the words of the training text, and segments words into them, chunk by chunk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from rskip.corpora.record import write_json
from rskip.corpora.stages.deduplicate import KeptChunk
from rskip.corpora.stages.setting import Setting
from rskip.corpora.stages.tokenise import WORDS, write_lines
from rskip.text.pipeline import TextPipeline
from rskip.text.subwords import BytePairEncoding, Subwords, subwords_class

TEXT, TOKENS, COUNTS = "text", "tokens", "counts"

LARGEST_SAMPLE, LARGEST_SAMPLE_OF_SENTENCEPIECE = 5_000_000, 500_000
"""Default maximum number of pairs for learning units. Of a larger corpus every k-th pair is used. The limit bounds
memory: subword-nmt holds every word with its pairs of letters, and SentencePiece all sentences."""


def learn(setting: Setting, chunks: Sequence[KeptChunk]) -> TextPipeline:
    """Learns the units, saves the text pipeline in the work folder's `text` and returns it.

    The units are learnt from both languages together: from every k-th remaining pair, with the smallest k that gives
    at most the sample's size.

    :raises ValueError: the units can't be learnt from this text.
    """
    folder = setting.work.path / TEXT
    if (folder / "pipeline.json").exists():  # `save` writes it last
        return TextPipeline.load(folder)
    kind, size = setting.options.subwords, setting.options.size
    assert size is not None
    pairs = sum(chunk.size for chunk in chunks)
    largest = LARGEST_SAMPLE if kind == "bpe" else LARGEST_SAMPLE_OF_SENTENCEPIECE
    step = -(-pairs // (setting.options.learn_sample or largest))
    subwords: Subwords
    if kind == "bpe":
        subwords = BytePairEncoding.learn_from_counts(_count_words(setting, chunks, step=step), size=size)
    else:
        sentences = (
            line
            for side in range(2)
            for chunk in chunks
            for line in _sample(chunk, setting.sides(WORDS, chunk.name)[side], step=step)
        )
        subwords = subwords_class(kind).learn(sentences, size=size)
    pipeline = TextPipeline(setting.config, subwords)
    pipeline.save(folder)
    return pipeline


def _sample(chunk: KeptChunk, path: Path, *, step: int) -> Iterator[str]:
    """The lines of this chunk among every `step`-th remaining pair of the corpus."""
    return islice(chunk.lines(path), -chunk.start % step, None, step)


def _count_words(setting: Setting, chunks: Sequence[KeptChunk], *, step: int) -> Counter[str]:
    counts: Counter[str] = Counter()
    job = CountWords(setting=setting, step=step)
    setting.run("count words", job, chunks, everything=chunks, per_worker=8, take=counts.update)
    return counts


@dataclass(frozen=True, kw_only=True)
class CountWords:
    """Counts the words on both sides of a chunk's sample."""

    setting: Setting
    step: int

    def __call__(self, chunk: KeptChunk) -> Counter[str]:
        counts: Counter[str] = Counter()
        for path in self.setting.sides(WORDS, chunk.name):
            for line in _sample(chunk, path, step=self.step):
                counts.update(line.split(" "))
        counts.pop("", None)
        return counts


def segment_held_out(setting: Setting, pipeline: TextPipeline, split: str) -> None:
    """Writes the tokens of a split that is not cleaned."""
    for source, target in zip(setting.sides(WORDS, split), setting.sides(TOKENS, split), strict=True):
        if not target.exists():
            with source.open(encoding="utf-8", newline="\n") as file:
                write_lines(target, [pipeline.subwords.segment(line.removesuffix("\n")) for line in file])


def segment_train(setting: Setting, chunks: Sequence[KeptChunk]) -> None:
    """Writes each chunk's tokens and their counts, then removes its words."""
    counts = setting.work.folder(COUNTS)
    if left := [chunk for chunk in chunks if not (counts / f"{chunk.name}.json").exists()]:
        setting.run("segment", Segment(setting), left, everything=chunks)


@dataclass(frozen=True)
class Segment:
    """Writes one chunk's files. The counts come last: if they exist, all files are complete.

    The chunk's number is the seed of BPE dropout, so the number and order of workers do not change the result.
    """

    setting: Setting

    @cached_property
    def _pipeline(self) -> TextPipeline:
        return TextPipeline.load(self.setting.work.folder(TEXT))

    def __call__(self, chunk: KeptChunk) -> None:
        setting = self.setting
        counts: Counter[str] = Counter()
        subwords: Any = self._pipeline.subwords
        segment: Callable[[str], str] = subwords.segment
        if setting.options.bpe_dropout:
            segment = subwords.with_dropout(setting.options.bpe_dropout, seed=chunk.number)
        words = setting.sides(WORDS, chunk.name)
        for source, target in zip(words, setting.sides(TOKENS, chunk.name), strict=True):
            lines = [segment(line) for line in chunk.lines(source)]
            for line in lines:
                counts.update(line.split())
            write_lines(target, lines)
        write_json(setting.work.folder(COUNTS) / f"{chunk.name}.json", counts)
        for path in words:
            path.unlink()
