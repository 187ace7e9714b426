"""Divides the pairs of a corpus into splits, and those of train into blocks, which are processed one by one.

Validation and test sets are split off the user's training text so that no source sentence is in two sets.
"""

from __future__ import annotations

import dataclasses
import hashlib
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from rskip.corpora.cleaning import PairCleaner
from rskip.corpora.corpus import SPLITS, Corpus, GeneratedCorpus, Pair, PublishedCorpus, Text
from rskip.corpora.formats import TextFile, read_pairs
from rskip.corpora.options import PrepareOptions
from rskip.corpora.own_corpus import OwnCorpus
from rskip.extras import extra
from rskip.files.whole import whole_folder
from rskip.machine.progress import Progress

with extra("translation", what="a corpus of text"):
    import numpy as np

PAIRS_IN_BLOCK = 20_000
"""Small enough that a killed run loses little and several blocks fit into memory. BPE dropout depends on it."""


@dataclass(frozen=True, kw_only=True)
class SplitText:
    """One of the texts of a split.

    :param sides: the files of source and target sentences.
    :param sentences, every, except_every: as in `ParallelText`.
    """

    split: str
    name: str
    sides: tuple[TextFile, TextFile]
    sentences: int | None = None
    every: int | None = None
    except_every: int | None = None

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


def split_texts(
    corpus: Corpus, options: PrepareOptions, files: Mapping[Text, TextFile], *, generated: Path
) -> list[SplitText]:
    """Every text of every split, in order.

    :param files: the unpacked file of each of the corpus's texts.
    :param generated: folder for the pairs of a generated corpus, or for the user's own pairs by split. It is written
        if it is missing.
    """
    if isinstance(corpus, PublishedCorpus):
        return [
            SplitText(
                split=split,
                name=text.name,
                sides=(files[text.sides[corpus.source]], files[text.sides[corpus.target]]),
                sentences=text.sentences,
                every=text.every,
                except_every=text.except_every,
            )
            for split, texts in corpus.splits.items()
            for text in texts
        ]
    names = {split: [corpus.name] for split in SPLITS}
    if isinstance(corpus, OwnCorpus):
        for split in corpus.split_names:
            names[split] = [text.name for text in corpus.texts.get(split, ())] or [f"{split}, split off"]
    parts = {
        (split, number): (name, _sides(generated, split, number, f"{name} ({split})"))
        for split, texts in names.items()
        for number, name in enumerate(texts)
    }
    if not generated.exists():
        with whole_folder(generated) as building, ExitStack() as stack:
            targets = {
                part: [
                    stack.enter_context(side.path.open("w", encoding="utf-8", newline="\n"))
                    for side in _sides(building, *part)
                ]
                for part in parts
            }
            total = corpus.pairs if isinstance(corpus, OwnCorpus) else options.pairs  # of train
            bar = stack.enter_context(Progress("split", total=total, unit=" pairs", log=30.0))
            if isinstance(corpus, OwnCorpus):
                dealt = deal_pairs(corpus, options)
            else:
                assert isinstance(corpus, GeneratedCorpus)
                dealt = ((split, 0, pair) for split, pair in corpus.generate(pairs=options.pairs, seed=options.seed))
            for split, number, pair in dealt:  # one by one, since they may not fit into memory
                for file, sentence in zip(targets[split, number], pair, strict=True):
                    file.write(sentence.replace("\0", " ") + "\n")  # Tokenizer replaces it too
                bar.update(isinstance(corpus, OwnCorpus) or split == "train")
    return [SplitText(split=split, name=name, sides=sides) for (split, _), (name, sides) in parts.items()]


def _sides(folder: Path, split: str, number: int, name: str = "") -> tuple[TextFile, TextFile]:
    prefix = folder / f"{split}-{number}"
    return TextFile(Path(f"{prefix}.source"), name=name), TextFile(Path(f"{prefix}.target"), name=name)


def read_blocks(
    texts: Sequence[tuple[SplitText, int]],
) -> tuple[list[int], Iterator[tuple[SplitText, int, list[Pair]]]]:
    """Divides the raw pairs of some texts into blocks. A block never spans two texts.

    :param texts: each with its number of pairs.
    :returns: the number of pairs in each block; and each block's text, the number of its first pair, and its pairs.
    """

    def blocks() -> Iterator[tuple[SplitText, int, list[Pair]]]:
        for text, count in texts:
            pairs = text.pairs()
            for start in range(0, count, PAIRS_IN_BLOCK):
                yield text, start + 1, list(islice(pairs, PAIRS_IN_BLOCK))

    sizes = [min(PAIRS_IN_BLOCK, count - start) for _, count in texts for start in range(0, count, PAIRS_IN_BLOCK)]
    return sizes, blocks()


def deal_pairs(corpus: OwnCorpus, options: PrepareOptions) -> Iterator[tuple[str, int, Pair]]:
    """Yields every pair of the corpus with its split and the number of its text in that split, from 0.

    The different source sentences are sorted by a hash of seed and sentence. The first ones become test, the next ones
    valid. Added text therefore changes few of them. Each chosen sentence gets the first of its pairs that cleaning
    would keep, with words separated by spaces. Its other pairs are left out.
    """
    languages, seed = (corpus.source, corpus.target), options.seed or 0
    cleaning = dataclasses.replace(options.cleaning, empty=True, leaks=False, languages=False)
    cleaner = PairCleaner(cleaning, languages=languages)

    def usable(pair: Pair) -> bool:
        return cleaner.reason((" ".join(pair[0].split()), " ".join(pair[1].split()))) is None

    owner: dict[int | None, str] = {}
    if sizes := {split: getattr(options, split) for split in sorted(corpus.split_off)}:
        keys = array("Q")
        for summary in corpus.texts["train"]:
            keys.extend(_key(pair[0], seed) for pair in summary.text.pairs(languages) if usable(pair))
        distinct = np.unique(np.frombuffer(keys, dtype=np.uint64)) if keys else np.empty(0, dtype=np.uint64)
        if len(distinct) <= sum(sizes.values()):
            wanted = ", ".join(f"{split} {sizes[split]:,}" for split in corpus.split_off)
            raise ValueError(
                f"the training text has {len(distinct):,} different source sentences after cleaning: expected more "
                f"than the {sum(sizes.values()):,} that are split off ({wanted}); give more text, or these sets"
            )
        for split, size in sizes.items():  # test before valid, so another size of valid does not change test
            owner.update(dict.fromkeys(distinct[len(owner) : len(owner) + size].tolist(), split))
    taken: set[int | None] = set()
    for split, texts in corpus.texts.items():
        for number, summary in enumerate(texts):
            for pair in summary.text.pairs(languages):
                key = _key(pair[0], seed) if split == "train" and owner else None
                if key not in owner:
                    yield split, number, pair
                elif key not in taken and usable(pair):
                    taken.add(key)
                    yield owner[key], 0, pair


def _key(source: str, seed: int) -> int:
    content = f"{seed}\n{' '.join(source.split())}".encode()
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")
