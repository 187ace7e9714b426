"""Describes a corpus: its upstream files, the texts of its splits, its terms, and its default preparation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rskip.machine.terminal import columns

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
    :param size: number of BPE merges or SentencePiece units.
    """

    cleaning: CleaningOptions = CleaningOptions()
    tokenised: bool = False
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
class GeneratedCorpus(Corpus):
    """A corpus that is generated from a seed.

    :param generate: takes pairs= and seed=, and yields each pair with its split.
    :param packages: the packages that generate it. corpus.json records their versions.
    """

    generate: Callable[..., Iterator[tuple[str, Pair]]]
    pairs: int
    seed: int
    packages: tuple[str, ...]

    @property
    def choices(self) -> Mapping[str, int]:
        return {"pairs": self.pairs, "seed": self.seed}


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


def overview(corpora: Iterable[Corpus | CaptionCorpus | TextCorpus]) -> str:
    """A table with one line per corpus: name (of both directions), training data, bytes to download, terms of use. It
    has no last line end."""
    rows: dict[object, list[str]] = {}
    for corpus in corpora:
        either, content, files = corpus.name, "text", list[UpstreamFile]()
        if isinstance(corpus, Corpus):
            either = corpus.name.removesuffix(f"{corpus.source}-{corpus.target}")
            either += "-".join(sorted((corpus.source, corpus.target)))
        if isinstance(corpus, CaptionCorpus):
            content, files = f"{corpus.images['train']:,} images", [corpus.archive]
        elif isinstance(corpus, TextCorpus):
            files = [corpus.file]
        elif isinstance(corpus, PublishedCorpus):
            pairs = _pairs(corpus.splits["train"])
            content, files = "unknown" if pairs is None else f"{pairs:,} pairs", corpus.upstream_files()
        elif isinstance(corpus, GeneratedCorpus):
            content = f"{corpus.pairs:,} pairs"
        if either in rows:
            rows[either][0] += f", {corpus.name}"
        else:
            rows[either] = [corpus.name, content, _total(files) if files else "none", corpus.licence]
    return columns([("corpus", "to train on", "download", "terms"), *rows.values()], left=(0, 3))


def describe(corpus: Corpus | CaptionCorpus | TextCorpus) -> str:
    """Describes a corpus in lines: name and homepage, then indented its terms of use, the paper to cite, the texts of
    each split, the default preparation and the files to download. There is no last line end."""
    lines = [f"{corpus.name}: {corpus.homepage}", f"terms: {corpus.licence}", f"source: {corpus.citation}"]
    if isinstance(corpus, CaptionCorpus):
        counts = ", ".join(f"{split} {count:,}" for split, count in corpus.images.items())
        lines.append(f"captioned images: {counts}")
        lines.append(f"images: not downloaded; get them from {corpus.image_source}")
        return "\n  ".join([*lines, _files([corpus.archive])])
    if isinstance(corpus, TextCorpus):
        lines.append("train: the first nine tenths of the text; valid: the rest; tokens: characters by default")
        return "\n  ".join([*lines, _files([corpus.file])])
    lines.append(f"languages: {corpus.source} to {corpus.target}")
    if isinstance(corpus, GeneratedCorpus):
        lines.append(f"train: {corpus.pairs:,} pairs by default")
    if isinstance(corpus, PublishedCorpus):
        lines += [_split(split, texts) for split, texts in corpus.splits.items()]
    lines.append(f"prepared: {_steps(corpus)}")
    if isinstance(corpus, PublishedCorpus):
        lines.append(_files(corpus.upstream_files()))
    return "\n  ".join(lines)


def _pairs(texts: Iterable[ParallelText]) -> int | None:
    """The number of pairs in the texts before cleaning; None: unknown."""
    total = 0
    for text in texts:
        if text.sentences is None:
            return None
        every = text.every or text.except_every
        chosen = text.sentences // every if every else text.sentences
        total += text.sentences - chosen if text.except_every else chosen
    return total


def _split(split: str, texts: tuple[ParallelText, ...]) -> str:
    pairs, names = _pairs(texts), []
    for text in texts:
        every = "" if text.every is None else f" (1 pair in {text.every})"
        names.append(text.name + (every if text.except_every is None else f" (all but 1 pair in {text.except_every})"))
    return f"{split}: {'' if pairs is None else f'{pairs:,} pairs: '}{', '.join(names)}"


_DROPPED = {
    "empty": "empty",
    "max_words": "more than {} words",
    "max_characters": "more than {} characters",
    "max_ratio": "one side over {:g} times the other",
    "languages": "another language",
    "leaks": "in valid or test",
    "duplicates": "repeated",
}


def _steps(corpus: Corpus) -> str:
    """The steps of preparation and their settings, in order."""
    cleaning = corpus.defaults.cleaning
    dropped = [text.format(value) for name, text in _DROPPED.items() if (value := getattr(cleaning, name))]
    own = "tokenised by its publisher"
    steps = {
        "HTML entities unescaped": cleaning.entities == "unescape",
        "non-printing characters removed": cleaning.remove_non_printing,
        own if corpus.defaults.tokenised else "punctuation normalised, tokenised as Moses does": True,
        f"training pairs dropped ({', '.join(dropped)})": dropped,
        f"{corpus.defaults.size:,} subword units": True,
    }
    return ", ".join(step for step, taken in steps.items() if taken)


def _files(files: list[UpstreamFile]) -> str:
    named = (f"{file.name} ({'unknown' if file.size is None else _size(file.size)})" for file in files)
    return f"files: {_total(files)}: {', '.join(named)}"


def _total(files: Sequence[UpstreamFile]) -> str:
    known = [file.size for file in files if file.size is not None]
    if not known:
        return "unknown"
    return _size(sum(known)) if len(known) == len(files) else f"over {_size(sum(known))}"


def _size(count: int) -> str:
    for unit, scale in (("GB", 10**9), ("MB", 10**6)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count / 1000:.0f} kB"
