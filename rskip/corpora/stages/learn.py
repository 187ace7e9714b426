"""Learns subword units from the words of the training text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from rskip.corpora.stages.deduplicate import KeptChunk
from rskip.corpora.stages.setting import Setting, progress
from rskip.corpora.stages.tokenise import WORDS
from rskip.machine.workers import in_order
from rskip.text.pipeline import TextPipeline
from rskip.text.subwords import BytePairEncoding, Subwords, subwords_class

TEXT = "text"

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
    words = setting.work.folder(WORDS)
    subwords: Subwords
    if kind == "bpe":
        subwords = BytePairEncoding.learn_from_counts(_count_words(setting, chunks, words, step=step), size=size)
    else:
        sentences = (
            line
            for side in range(2)
            for chunk in chunks
            for line in _sample(chunk, setting.sides(words, chunk.name)[side], step=step)
        )
        subwords = subwords_class(kind).learn(sentences, size=size)
    pipeline = TextPipeline(setting.config, subwords)
    pipeline.save(folder)
    return pipeline


def _sample(chunk: KeptChunk, path: Path, *, step: int) -> Iterator[str]:
    """The lines of this chunk among every `step`-th remaining pair of the corpus."""
    return islice(chunk.lines(path), -chunk.start % step, None, step)


def _count_words(setting: Setting, chunks: Sequence[KeptChunk], words: Path, *, step: int) -> Counter[str]:
    counts: Counter[str] = Counter()
    job = CountWords(folder=words, languages=setting.languages, step=step)
    with (
        progress("count words", chunks, chunks) as bar,
        closing(in_order(job, chunks, workers=setting.processes(len(chunks) // 8))) as counted,
    ):
        for chunk, part in zip(chunks, counted, strict=True):
            counts.update(part)
            bar.update(chunk.size)
    return counts


@dataclass(frozen=True, kw_only=True)
class CountWords:
    """Counts the words on both sides of a chunk's sample."""

    folder: Path
    languages: tuple[str, str]
    step: int

    def __call__(self, chunk: KeptChunk) -> Counter[str]:
        counts: Counter[str] = Counter()
        for language in self.languages:
            for line in _sample(chunk, self.folder / f"{chunk.name}.{language}", step=self.step):
                counts.update(line.split(" "))
        counts.pop("", None)
        return counts
