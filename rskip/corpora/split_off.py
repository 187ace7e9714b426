"""Splits validation and test sets off the training text, so that no source sentence is in two sets."""

from __future__ import annotations

import dataclasses
import hashlib
from array import array
from collections.abc import Callable, Iterator

from rskip.corpora.cleaning import PairCleaner
from rskip.corpora.corpus import CleaningOptions, Pair
from rskip.corpora.own_corpus import OwnCorpus
from rskip.extras import extra
from rskip.settings.errors import SettingError

with extra("translation", what="a corpus of text"):
    import numpy as np


def deal_pairs(
    corpus: OwnCorpus, *, sizes: dict[str, int], seed: int, cleaning: CleaningOptions
) -> Iterator[tuple[str, int, Pair]]:
    """Yields every pair of the corpus with its split and the number of its text in that split, from 0.

    The different source sentences are sorted by a hash of seed and sentence. The first ones become test, the next ones
    valid. Added text therefore changes few of them. Each chosen sentence gets the first of its pairs that cleaning
    would keep, with words separated by spaces. Its other pairs are left out.

    :param sizes: number of pairs to split off train, for valid and for test.
    :raises SettingError: train has too few source sentences.
    """
    languages = (corpus.source, corpus.target)
    usable = _usable(cleaning, languages)
    owner = _chosen(corpus, sizes, seed, usable)
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


def _chosen(
    corpus: OwnCorpus, sizes: dict[str, int], seed: int, usable: Callable[[Pair], bool]
) -> dict[int | None, str]:
    """Maps the key of each chosen source sentence of train to its split."""
    if not sizes:
        return {}
    keys = array("Q")
    for summary in corpus.texts["train"]:
        keys.extend(_key(pair[0], seed) for pair in summary.text.pairs((corpus.source, corpus.target)) if usable(pair))
    distinct = np.unique(np.frombuffer(keys, dtype=np.uint64)) if keys else np.empty(0, dtype=np.uint64)
    if len(distinct) <= sum(sizes.values()):
        wanted = ", ".join(f"{split} {count:,}" for split, count in sizes.items())
        raise SettingError(
            "",
            f"the training text has {len(distinct):,} different source sentences after cleaning",
            expected=f"more than the {sum(sizes.values()):,} that are split off ({wanted})",
            advice="give more text, or give these sets as separate files",
        )
    owner: dict[int | None, str] = {}
    for split in sorted(sizes):  # test before valid, so another size of valid does not change test
        owner.update(dict.fromkeys(distinct[len(owner) : len(owner) + sizes[split]].tolist(), split))
    return owner


def _key(source: str, seed: int) -> int:
    content = f"{seed}\n{' '.join(source.split())}".encode()
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")


def _usable(cleaning: CleaningOptions, languages: tuple[str, str]) -> Callable[[Pair], bool]:
    cleaner = PairCleaner(dataclasses.replace(cleaning, empty=True, leaks=False, languages=False), languages=languages)
    return lambda pair: cleaner.reason((" ".join(pair[0].split()), " ".join(pair[1].split()))) is None
