"""The corpora that `rskip prepare` knows: those of corpora.yaml, and those that are generated."""

from __future__ import annotations

import difflib
from pathlib import Path

from rskip.corpora.corpus import Corpus
from rskip.corpora.numbers import numbers
from rskip.corpora.registry_file import read_corpora

REGISTRY_FILE = Path(__file__).with_name("corpora.yaml")

CORPORA: dict[str, Corpus] = {
    corpus.name: corpus for corpus in (*read_corpora(REGISTRY_FILE), numbers("en", "de"), numbers("de", "en"))
}


def find_corpus(name: str) -> Corpus:
    """The corpus called `name`.

    :raises ValueError: unknown name; says the nearest known ones.
    """
    if name in CORPORA:
        return CORPORA[name]
    begun = [known for known in CORPORA if name and known.startswith(name.lower())]
    near = begun or difflib.get_close_matches(name.lower(), CORPORA, n=1)
    hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
    raise ValueError(f"unknown corpus {name!r}: {hint}`rskip prepare --list` shows all")
