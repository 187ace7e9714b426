"""The corpora that `rskip prepare` knows."""

from __future__ import annotations

import difflib

from rskip.corpora.corpus import Corpus
from rskip.corpora.multi30k import multi30k
from rskip.corpora.numbers import numbers

CORPORA: dict[str, Corpus] = {
    corpus.name: corpus
    for corpus in (
        multi30k("en", "de"),
        multi30k("de", "en"),
        multi30k("en", "fr"),
        multi30k("fr", "en"),
        numbers("en", "de"),
        numbers("de", "en"),
    )
}


def find_corpus(name: str) -> Corpus:
    """The corpus called `name`.

    :raises ValueError: unknown name; says the nearest known one.
    """
    if name in CORPORA:
        return CORPORA[name]
    nearest = difflib.get_close_matches(name, CORPORA, n=1, cutoff=0.0)[0]
    raise ValueError(f"unknown corpus {name!r}: did you mean {nearest!r}? `rskip prepare --list` shows all")
