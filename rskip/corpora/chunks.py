"""Divides the pairs of a corpus into chunks of some thousands, which are processed one by one."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from rskip.corpora.corpus import SPLITS, Corpus, GeneratedCorpus, Pair, PublishedCorpus, Text
from rskip.corpora.formats import TextFile, read_pairs
from rskip.corpora.options import PrepareOptions
from rskip.corpora.own_corpus import OwnCorpus
from rskip.corpora.split_off import deal_pairs
from rskip.files.whole import whole_folder
from rskip.machine.progress import Progress

PAIRS_IN_CHUNK = 20_000
"""Small enough that a killed run loses little and several chunks fit into memory. BPE dropout depends on it."""


@dataclass(frozen=True, kw_only=True)
class SplitText:
    """One of the texts of a split.

    :param split: such as "train".
    :param name: such as "europarl-v7".
    :param sides: the files of source and target sentences.
    :param sentences: expected number of sentences per side; None: unknown.
    :param every: n takes only every n-th pair.
    :param except_every: n takes all but every n-th pair.
    """

    split: str
    name: str
    sides: tuple[TextFile, TextFile]
    sentences: int | None = None
    every: int | None = None
    except_every: int | None = None

    @property
    def place(self) -> str:
        """The name of the text in error messages."""
        return str(self.sides[0])

    def pairs(self) -> Iterator[Pair]:
        """The raw pairs.

        :raises ValueError: a file is damaged, the numbers of sentences differ, or they are not the expected number.
        """
        for number, pair in enumerate(read_pairs(*self.sides, sentences=self.sentences), start=1):
            if self.every is not None and number % self.every:
                continue
            if self.except_every is not None and not number % self.except_every:
                continue
            yield pair

    def count(self) -> int:
        """The number of pairs. It reads all of them and can raise the errors of `pairs`."""
        return sum(1 for _ in self.pairs())


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """Consecutive pairs of one text.

    :param name: name of its files. The alphabetical order of a split's chunks is the order of their pairs.
    :param number: number within its split, from 0.
    :param text: name of the text.
    :param place: the file of the source side, for messages.
    :param first: number of its first pair within the text, from 1.
    :param size: number of pairs.
    """

    name: str
    split: str
    number: int
    text: str
    place: str
    first: int
    size: int


def split_texts(
    corpus: Corpus, options: PrepareOptions, files: Mapping[Text, TextFile], *, generated: Path
) -> list[SplitText]:
    """Every text of every split, in order.

    :param files: the unpacked file of each of the corpus's texts.
    :param generated: folder for the pairs of a generated corpus, or for the user's own pairs by split. It is written
        if it is missing.
    """
    if isinstance(corpus, OwnCorpus):
        if not generated.exists():
            _deal(corpus, options, generated)
        return [
            SplitText(split=split, name=name, sides=_sides(generated, f"{split}-{number}", f"{name} ({split})"))
            for split, number, name in _own_parts(corpus)
        ]
    if isinstance(corpus, GeneratedCorpus):
        if not generated.exists():
            _generate(corpus, options, generated)
        return [
            SplitText(split=split, name=corpus.name, sides=_sides(generated, split, f"the generated {split} pairs"))
            for split in SPLITS
        ]
    assert isinstance(corpus, PublishedCorpus)
    return [
        SplitText(
            split=split,
            name=parallel.name,
            sides=(files[parallel.sides[corpus.source]], files[parallel.sides[corpus.target]]),
            sentences=parallel.sentences,
            every=parallel.every,
            except_every=parallel.except_every,
        )
        for split, texts in corpus.splits.items()
        for parallel in texts
    ]


def _own_parts(corpus: OwnCorpus) -> list[tuple[str, int, str]]:
    """The split, the number in the split and the name of each text."""
    return [
        (split, number, name)
        for split in corpus.split_names
        for number, name in enumerate([text.name for text in corpus.texts.get(split, ())] or [f"{split}, split off"])
    ]


def _deal(corpus: OwnCorpus, options: PrepareOptions, folder: Path) -> None:
    """Writes each of the user's own pairs to its split."""
    sizes = {split: getattr(options, split) for split in corpus.split_off}
    with whole_folder(folder) as building, ExitStack() as stack:
        files = {
            (split, number): [
                stack.enter_context(side.path.open("w", encoding="utf-8", newline="\n"))
                for side in _sides(building, f"{split}-{number}")
            ]
            for split, number, _ in _own_parts(corpus)
        }
        bar = stack.enter_context(Progress("split", total=corpus.pairs, unit=" pairs", log=30.0))
        for split, number, pair in deal_pairs(corpus, sizes=sizes, seed=options.seed or 0, cleaning=options.cleaning):
            for file, sentence in zip(files[split, number], pair, strict=True):
                file.write(sentence.replace("\0", " ") + "\n")  # Tokenizer replaces it too
            bar.update()


def _generate(corpus: GeneratedCorpus, options: PrepareOptions, folder: Path) -> None:
    """Writes the pairs one by one, since they may not fit into memory."""
    with (
        whole_folder(folder) as building,
        ExitStack() as stack,
        Progress("generate", total=options.pairs, unit=" pairs", log=30.0) as bar,
    ):
        paths = {split: [side.path for side in _sides(building, split)] for split in SPLITS}
        files = {
            split: [stack.enter_context(path.open("w", encoding="utf-8")) for path in both]
            for split, both in paths.items()
        }
        for split, pair in corpus.generate(pairs=options.pairs, seed=options.seed):
            for file, sentence in zip(files[split], pair, strict=True):
                file.write(f"{sentence}\n")
            bar.update(split == "train")


def _sides(folder: Path, split: str, name: str = "") -> tuple[TextFile, TextFile]:
    return TextFile(folder / f"{split}.source", name=name), TextFile(folder / f"{split}.target", name=name)


def plan_chunks(texts: Sequence[SplitText], counts: Sequence[int]) -> list[Chunk]:
    """The chunks of one split. A chunk never spans two texts.

    :param counts: number of pairs in each text.
    """
    chunks: list[Chunk] = []
    for text, count in zip(texts, counts, strict=True):
        for start in range(0, count, PAIRS_IN_CHUNK):
            number = len(chunks)
            chunks.append(
                Chunk(
                    name=f"{text.split}-{number:06d}",
                    split=text.split,
                    number=number,
                    text=text.name,
                    place=text.place,
                    first=start + 1,
                    size=min(PAIRS_IN_CHUNK, count - start),
                )
            )
    return chunks


def read_chunks(
    texts: Sequence[SplitText], chunks: Sequence[Chunk], *, skip: Collection[str] = ()
) -> Iterator[tuple[Chunk, list[Pair]]]:
    """The raw pairs of one split's chunks.

    :param texts: the texts of the split.
    :param skip: names of chunks to skip.
    """
    left = deque(chunks)
    for text in texts:
        own: list[Chunk] = []
        while left and left[0].text == text.name and (not own or left[0].first > 1):
            own.append(left.popleft())
        while own and own[-1].name in skip:
            own.pop()
        pairs = text.pairs() if own else iter(())
        for chunk in own:
            if chunk.name in skip:
                deque(islice(pairs, chunk.size), maxlen=0)
                continue
            held = list(islice(pairs, chunk.size))
            assert len(held) == chunk.size, f"{chunk.place} has changed"
            yield chunk, held
