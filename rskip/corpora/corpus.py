"""Describes a corpus: its upstream files, the texts of its splits, its terms, and its default preparation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from rskip.text.subwords import SubwordKind

SPLITS = ("train", "valid", "test")
"""The splits of every corpus. Further test sets are test1, test2 and so on, as in fairseq."""

Entities = Literal["keep", "unescape"]

Format = Literal["lines", "sgm", "ted", "xml"]
"""The format of a text (`rskip.corpora.formats.TextFile`)."""

CaptionFormat = Literal["flickr8k", "karpathy"]
"""The format of captions and their splits (`rskip.captioning.preparation`)."""

Pair = tuple[str, str]
"""A source sentence and its translation."""


@dataclass(frozen=True, kw_only=True)
class UpstreamFile:
    """A file of a publisher.

    :param name: its name at the publisher and in a mirror.
    :param size: bytes; None: unknown.
    :param sha256: hexadecimal checksum, computed from the file or quoted from its publisher; None: unknown, and the
        file is accepted unverified.
    """

    name: str
    url: str
    size: int | None = None
    sha256: str | None = None


@dataclass(frozen=True, kw_only=True)
class Text:
    """The sentences of one language.

    :param member: the path of the sentences within the file if it is an archive.
    """

    file: UpstreamFile
    member: str | None = None
    format: Format = "lines"


@dataclass(frozen=True, kw_only=True)
class ParallelText:
    """Two texts that translate each other sentence by sentence.

    :param name: such as "europarl-v7".
    :param sides: the text of each language.
    :param sentences: expected number of sentences per side before `every` and `except_every` select; None: unknown.
    :param every: n takes only the pairs n, 2n, 3n and so on, counted from 1.
    :param except_every: n takes all pairs except those.
    """

    name: str
    sides: Mapping[str, Text]
    sentences: int | None = None
    every: int | None = None
    except_every: int | None = None

    @property
    def pairs(self) -> int | None:
        """The number of pairs that are taken; None: unknown."""
        if self.sentences is None or not (every := self.every or self.except_every):
            return self.sentences
        chosen = self.sentences // every
        return self.sentences - chosen if self.except_every else chosen

    def takes(self, number: int) -> bool:
        """Whether the pair with this number, counted from 1, is taken."""
        if self.every is not None:
            return number % self.every == 0
        return self.except_every is None or number % self.except_every != 0


@dataclass(frozen=True, kw_only=True)
class CleaningOptions:
    """Options of cleaning training pairs. Lengths are in words after tokenisation; 0 is no limit. The defaults drop
    nothing.

    :param remove_non_printing: remove control and format characters before tokenisation.
    :param entities: "keep", or "unescape" to replace HTML entities such as `&quot;` by characters before tokenisation.
    :param empty: drop pairs with a side without visible characters.
    :param max_words: drop pairs with more words on a side.
    :param max_characters: drop pairs with more characters on a side, including spaces between words.
    :param max_ratio: drop pairs if one side has more than this many times the words of the other.
    :param duplicates: drop all but the first of equal pairs.
    :param leaks: drop pairs that are also in valid or test.
    :param languages: drop pairs with a side in a wrong language.
    """

    remove_non_printing: bool = False
    entities: Entities = "keep"
    empty: bool = False
    max_words: int = 0
    max_characters: int = 0
    max_ratio: float = 0
    duplicates: bool = False
    leaks: bool = False
    languages: bool = False


@dataclass(frozen=True, kw_only=True)
class PrepareDefaults:
    """The default preparation of a corpus.

    :param tokenised: whether its text is tokenised by Moses' rules already, and must not be tokenised again.
    :param subwords: the kind of subword units.
    :param size: number of BPE merges or SentencePiece units.
    """

    cleaning: CleaningOptions = CleaningOptions()
    tokenised: bool = False
    subwords: SubwordKind = "bpe"
    size: int = 10_000


@dataclass(frozen=True, kw_only=True)
class Described:
    """The properties of every corpus.

    :param name: as in `rskip prepare NAME`.
    :param licence: terms of use.
    :param citation: the paper to cite.
    """

    name: str
    homepage: str
    licence: str
    citation: str


@dataclass(frozen=True, kw_only=True)
class Corpus(Described):
    """A corpus of sentence pairs.

    :param source, target: two-letter codes of the languages translated from and to.
    """

    source: str
    target: str
    defaults: PrepareDefaults = PrepareDefaults()

    @property
    def choices(self) -> Mapping[str, int]:
        """The options that only corpora of this kind have, with their defaults."""
        return {}

    @property
    def split_names(self) -> list[str]:
        """train, valid, test, and further test sets by number."""
        return list(SPLITS)


@dataclass(frozen=True, kw_only=True)
class PublishedCorpus(Corpus):
    """A corpus that is downloaded.

    :param folder: folder of its files in the cache. Corpora with common files share it.
    :param splits: the texts of train, valid, test and further test sets. The texts of a split are concatenated.
    """

    folder: str
    splits: Mapping[str, tuple[ParallelText, ...]]

    @property
    def split_names(self) -> list[str]:
        return list(self.splits)

    def upstream_files(self) -> list[UpstreamFile]:
        """The files of this corpus's two languages, in the order of use."""
        return list(dict.fromkeys(text.file for text in self.texts()))

    def texts(self) -> Iterator[Text]:
        """The texts of all splits, in this corpus's two languages."""
        for parallels in self.splits.values():
            for parallel in parallels:
                yield from (parallel.sides[self.source], parallel.sides[self.target])


@dataclass(frozen=True, kw_only=True)
class CaptionCorpus(Described):
    """Captions of images. The captions are downloaded. Users get the images themselves.

    :param folder: as in `PublishedCorpus`. It is also the default folder of the images.
    :param archive: the file to download.
    :param texts: its members, by their meaning in `format`. A mirror may contain them as separate files.
    :param images: number of captioned images in each split.
    :param image_source: source of the images, which completes "get them from".
    :param image_folders: possible names of the folder of images in a mirror.
    """

    folder: str
    archive: UpstreamFile
    format: CaptionFormat
    texts: Mapping[str, UpstreamFile]
    images: Mapping[str, int]
    image_source: str
    image_folders: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class TextCorpus(Described):
    """A text in one language, for language models. Its beginning is for training, its end for validation.

    :param folder: as in `PublishedCorpus`.
    """

    folder: str
    file: UpstreamFile
