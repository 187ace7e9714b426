"""Reads the texts of Multi30k English-German."""

from __future__ import annotations

from rskip.corpora.corpus import PublishedCorpus
from rskip.corpora.fetch import fetch
from rskip.corpora.formats import read_sentences
from rskip.corpora.registry import find_corpus


def multi30k(split: str, mirror: str | None) -> dict[str, list[str]]:
    """The sentences of a split by language, en and de.

    :param mirror: folder or address of the corpus' files; None: its publisher.
    """
    corpus = find_corpus("multi30k-en-de")
    assert isinstance(corpus, PublishedCorpus)
    files = fetch(corpus.upstream_files(), folder=corpus.folder, mirror=mirror)
    sides = corpus.splits[split][0].sides
    return {language: list(read_sentences(files[sides[language].file].path)) for language in ("en", "de")}
