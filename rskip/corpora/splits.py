"""Reads the raw pairs of a corpus, each with its split.

Validation and test sets are split off the user's training text so that no source sentence is in two sets.
"""

from __future__ import annotations

import dataclasses
import hashlib
from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path

from rskip.corpora.cleaning import PairCleaner
from rskip.corpora.corpus import Corpus, Pair, PublishedCorpus, Text, UpstreamFile
from rskip.corpora.formats import TextFile, read_pairs
from rskip.corpora.numbers import NumbersCorpus
from rskip.corpora.options import PrepareOptions
from rskip.corpora.own_corpus import OwnCorpus
from rskip.extras import extra
from rskip.files.archives import extract

with extra("translation", what="a corpus of text"):
    import numpy as np

SplitPair = tuple[str, str, Pair]
"""A split, the name of one of its texts, and a pair of the text."""


def split_pairs(
    corpus: Corpus, options: PrepareOptions, files: Mapping[UpstreamFile, Path], unpacked: Path
) -> Iterator[SplitPair]:
    """Every raw pair of a corpus, in the order of its texts.

    :param files: the upstream files of a published corpus.
    :param unpacked: the folder into which their archives are unpacked.
    :raises ValueError: a file is damaged, the sides have different numbers of sentences, or an unexpected number.
    """
    if isinstance(corpus, PublishedCorpus):
        yield from _published(corpus, files, unpacked)
        return
    if isinstance(corpus, OwnCorpus):
        dealt = deal_pairs(corpus, options)
    else:
        assert isinstance(corpus, NumbersCorpus) and options.pairs is not None and options.seed is not None
        made = corpus.generate(pairs=options.pairs, seed=options.seed)
        dealt = ((split, corpus.name, pair) for split, pair in made)
    for split, text, (source, target) in dealt:
        yield split, text, (_one_line(source), _one_line(target))


def _one_line(sentence: str) -> str:
    return sentence.replace("\0", " ").rstrip("\r")  # `Tokenizer` replaces NUL too


def _published(corpus: PublishedCorpus, files: Mapping[UpstreamFile, Path], unpacked: Path) -> Iterator[SplitPair]:
    """The pairs of downloaded files. In errors a text has the name of its archive and member."""
    members: dict[UpstreamFile, set[str]] = {}
    for text in corpus.texts():
        if text.member is not None:
            members.setdefault(text.file, set()).add(text.member)
    for file, wanted in members.items():
        extract(files[file], sorted(wanted), unpacked / file.name)

    def opened(text: Text) -> TextFile:
        if text.member is None:
            return TextFile(files[text.file], text.format)
        name = f"{files[text.file]}, member {text.member}"
        return TextFile(unpacked / text.file.name / text.member, text.format, name=name)

    for split, texts in corpus.splits.items():
        for parallel in texts:
            source, target = (opened(parallel.sides[language]) for language in (corpus.source, corpus.target))
            for number, pair in enumerate(read_pairs(source, target, sentences=parallel.sentences), start=1):
                if parallel.takes(number):
                    yield split, parallel.name, pair


def deal_pairs(corpus: OwnCorpus, options: PrepareOptions) -> Iterator[SplitPair]:
    """Yields the pairs of the user's own corpus.

    The different source sentences, without those of the given sets, are sorted by a hash of seed and sentence. The
    first ones become test, the next ones valid. Added text therefore changes few of them. Each chosen sentence gets the
    first of its pairs that cleaning would keep, with words separated by spaces. Its other pairs are left out.
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
        held_out = [each for split, texts in corpus.texts.items() if split != "train" for each in texts]
        others = {_key(pair[0], seed) for summary in held_out for pair in summary.text.pairs(languages)}
        distinct = np.setdiff1d(np.array(keys, np.uint64), np.array([*others], np.uint64))
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
        for summary in texts:
            for pair in summary.text.pairs(languages):
                key = _key(pair[0], seed) if split == "train" and owner else None
                if key not in owner:
                    yield split, summary.name, pair
                elif key not in taken and usable(pair):
                    taken.add(key)
                    yield owner[key], f"{owner[key]}, split off", pair


def _key(source: str, seed: int) -> int:
    content = f"{seed}\n{' '.join(source.split())}".encode()
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")
