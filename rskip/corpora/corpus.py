"""What a corpus is: languages, where its sentences come from, terms, and how it is prepared by default."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

SPLITS = ("train", "valid", "test")

Pair = tuple[str, str]
"""A source sentence and its translation, raw."""


@dataclass(frozen=True, kw_only=True)
class UpstreamFile:
    """One file as its publisher serves it.

    :param name: its name, upstream and in a mirror.
    :param url: where it is served.
    :param sha256: hexadecimal sum, computed from the file or quoted from its publisher.
    """

    name: str
    url: str
    sha256: str


@dataclass(frozen=True, kw_only=True)
class ParallelFiles:
    """Files that are translations of each other line by line.

    :param files: language to file.
    :param sentences: how many lines each must have.
    """

    files: Mapping[str, UpstreamFile]
    sentences: int


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """What every corpus has.

    :param name: as in `rskip prepare NAME`.
    :param source: two-letter code of the language translated from.
    :param target: two-letter code of the language translated to.
    :param homepage: where its publisher describes it.
    :param licence: terms of use.
    :param citation: the paper to cite.
    :param subword_size: BPE merges, or SentencePiece units, unless the user says otherwise.
    """

    name: str
    source: str
    target: str
    homepage: str
    licence: str
    citation: str
    subword_size: int


@dataclass(frozen=True, kw_only=True)
class PublishedCorpus(Corpus):
    """A corpus that is downloaded.

    :param folder: where its files are cached, under the cache's root. Corpora that share files share it.
    :param splits: train, valid and test, each one or more sets of files that are read one after another.
    """

    folder: str
    splits: Mapping[str, tuple[ParallelFiles, ...]]

    def upstream_files(self) -> list[UpstreamFile]:
        """The files of this corpus's two languages, each once, in the order of use."""
        files = [
            part.files[language]
            for split in SPLITS
            for part in self.splits[split]
            for language in (self.source, self.target)
        ]
        return list(dict.fromkeys(files))


@dataclass(frozen=True, kw_only=True)
class GeneratedCorpus(Corpus):
    """A corpus that is made from a seed.

    :param generate: called with pairs= and seed=; gives the pairs of each split.
    :param packages: what it is made with; their versions are kept in corpus.json.
    """

    generate: Callable[..., Mapping[str, list[Pair]]]
    pairs: int
    seed: int
    packages: tuple[str, ...]
