"""What a corpus is: its upstream files, which of their texts make which split, its terms, and how it is prepared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rskip.machine.terminal import columns
from rskip.settings.check import Checked
from rskip.settings.errors import SettingError
from rskip.settings.kinds import Count

SPLITS = ("train", "valid", "test")
"""Every corpus has these; further test sets are test1, test2 and so on, as fairseq calls them."""

Entities = Literal["keep", "unescape"]

Format = Literal["lines", "sgm", "ted", "xml"]
"""How a text is written: `rskip.corpora.formats.TextFile`."""

CaptionFormat = Literal["flickr8k", "karpathy"]
"""How captions and their splits are written: `rskip.captioning.preparation`."""

Pair = tuple[str, str]
"""A source sentence and its translation."""


@dataclass(frozen=True, kw_only=True)
class UpstreamFile:
    """One file as its publisher serves it.

    :param name: its name, upstream and in a mirror.
    :param url: where it is served.
    :param size: bytes; None where neither counted nor quoted from its publisher.
    :param sha256: hexadecimal sum, computed from the file or quoted from its publisher; None: not known, the file is
        taken as it comes.
    """

    name: str
    url: str
    size: int | None = None
    sha256: str | None = None


@dataclass(frozen=True, kw_only=True)
class Text:
    """One language's sentences.

    :param file: the file that they are in.
    :param member: their path within it, where it is an archive.
    """

    file: UpstreamFile
    member: str | None = None
    format: Format = "lines"


@dataclass(frozen=True, kw_only=True)
class ParallelText:
    """Texts that are translations of each other, sentence by sentence.

    :param name: such as "europarl-v7".
    :param sides: language to text.
    :param sentences: how many each must have, before `every` and `except_every` choose; None: not known.
    :param every: take the pairs number `every`, twice `every` and so on, counted from 1, and no others.
    :param except_every: take all pairs but those.
    """

    name: str
    sides: Mapping[str, Text]
    sentences: int | None = None
    every: int | None = None
    except_every: int | None = None


@dataclass(frozen=True, kw_only=True)
class CleaningOptions(Checked):
    """Which training pairs are dropped. Lengths are in words after tokenisation. The defaults drop nothing.

    :param remove_non_printing: control and format characters go, before tokenisation.
    :param entities: "keep", or "unescape": HTML entities such as `&quot;` become characters, before tokenisation.
    :param empty: pairs with a side without a visible character.
    :param max_words: pairs with a side longer than this.
    :param max_characters: likewise in characters, spaces between words included.
    :param max_ratio: pairs whose longer side has more than so many times the words of the shorter one.
    :param duplicates: all but the first of equal pairs.
    :param leaks: pairs that are also in valid or test.
    :param languages: pairs of which a side is not in its language.
    :raises SettingError: a value that can't be.
    """

    remove_non_printing: bool = False
    entities: Entities = "keep"
    empty: bool = False
    max_words: Count | None = None
    max_characters: Count | None = None
    max_ratio: float | None = None
    duplicates: bool = False
    leaks: bool = False
    languages: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_ratio is not None and self.max_ratio < 1:
            raise SettingError.of_value("max_ratio", self.max_ratio, "a number, 1 or more")


@dataclass(frozen=True, kw_only=True)
class PrepareDefaults:
    """How a corpus is prepared unless the user says otherwise.

    :param tokenised: its text is tokenised by Moses' rules already and is not tokenised again.
    :param size: BPE merges, or SentencePiece units.
    """

    cleaning: CleaningOptions = CleaningOptions()
    tokenised: bool = False
    size: Count = 10_000


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """What every corpus has.

    :param name: as in `rskip prepare NAME`.
    :param source: two-letter code of the language translated from.
    :param target: two-letter code of the language translated to.
    :param homepage: where its publisher describes it.
    :param licence: terms of use.
    :param citation: the paper to cite.
    """

    name: str
    source: str
    target: str
    homepage: str
    licence: str
    citation: str
    defaults: PrepareDefaults = PrepareDefaults()

    @property
    def choices(self) -> Mapping[str, int]:
        """The options that only corpora of this kind have, with their defaults."""
        return {}

    @property
    def split_names(self) -> list[str]:
        """train, valid, test, and further test sets in the order of their numbers."""
        return list(SPLITS)


@dataclass(frozen=True, kw_only=True)
class PublishedCorpus(Corpus):
    """A corpus that is downloaded.

    :param folder: where its files are cached, under the cache's root. Corpora that share files share it.
    :param splits: train, valid, test and further test sets, each one or more texts that are read one after another.
    """

    folder: str
    splits: Mapping[str, tuple[ParallelText, ...]]

    @property
    def split_names(self) -> list[str]:
        tests = sorted((split for split in self.splits if split.startswith("test")), key=lambda name: (len(name), name))
        assert {"train", "valid", *tests} == set(self.splits)
        return ["train", "valid", *tests]

    def upstream_files(self) -> list[UpstreamFile]:
        """The files of this corpus's two languages, each once, in the order of use."""
        files = [
            text.sides[language].file
            for texts in self.splits.values()
            for text in texts
            for language in (self.source, self.target)
        ]
        return list(dict.fromkeys(files))


@dataclass(frozen=True, kw_only=True)
class GeneratedCorpus(Corpus):
    """A corpus that is made from a seed.

    :param generate: called with pairs= and seed=; gives each pair with its split.
    :param packages: what it is made with; their versions are kept in corpus.json.
    """

    generate: Callable[..., Iterator[tuple[str, Pair]]]
    pairs: int
    seed: int
    packages: tuple[str, ...]

    @property
    def choices(self) -> Mapping[str, int]:
        return {"pairs": self.pairs, "seed": self.seed}


@dataclass(frozen=True, kw_only=True)
class CaptionCorpus:
    """Captions of images, which are downloaded; the images are their user's to get.

    :param name: as in `rskip prepare NAME`.
    :param folder: as of `PublishedCorpus`; images lie there too where they are not said to be elsewhere.
    :param archive: what is downloaded.
    :param texts: its members, by what they are to `format`. A mirror may hold them as files of their own.
    :param images: how many captioned images each split has.
    :param images: where they are to be had, as words after "get them from".
    :param picture_folders: their folder's names, within a mirror.
    """

    name: str
    homepage: str
    licence: str
    citation: str
    folder: str
    archive: UpstreamFile
    format: CaptionFormat
    texts: Mapping[str, UpstreamFile]
    images: Mapping[str, int]
    pictures: str
    picture_folders: tuple[str, ...]


def overview(corpora: Iterable[Corpus | CaptionCorpus]) -> str:
    """A line a corpus, under a heading: its name, of both directions where they are one corpus, what there is to train
    on, bytes to download, terms of use. Without a last line end."""
    rows: dict[object, list[str]] = {}
    for corpus in corpora:
        files: list[UpstreamFile] = []
        if isinstance(corpus, CaptionCorpus):
            content, files = f"{corpus.images['train']:,} images", [corpus.archive]
        elif isinstance(corpus, PublishedCorpus):
            pairs = _pairs(corpus.splits["train"])
            content, files = "unknown" if pairs is None else f"{pairs:,} pairs", corpus.upstream_files()
        else:
            content = f"{corpus.pairs:,} pairs" if isinstance(corpus, GeneratedCorpus) else ""
        either = corpus.name
        if isinstance(corpus, Corpus):
            either = corpus.name.removesuffix(f"{corpus.source}-{corpus.target}")
            either += "-".join(sorted((corpus.source, corpus.target)))
        if either in rows:
            rows[either][0] += f", {corpus.name}"
        else:
            rows[either] = [corpus.name, content, _total(files) if files else "none", corpus.licence]
    return columns([("corpus", "to train on", "download", "terms"), *map(tuple, rows.values())], left=(0, 3))


def describe(corpus: Corpus | CaptionCorpus) -> str:
    """Lines without a last line end: name and homepage, and indented below, the terms of use, the paper to cite, the
    texts of each split, how it is prepared by default, and for a published corpus the files that are downloaded."""
    lines = [f"{corpus.name}: {corpus.homepage}", f"terms: {corpus.licence}", f"source: {corpus.citation}"]
    if isinstance(corpus, CaptionCorpus):
        counts = ", ".join(f"{split} {count:,}" for split, count in corpus.images.items())
        lines.append(f"captioned images: {counts}")
        lines.append(f"images: not downloaded; get them from {corpus.pictures}")
        return "\n  ".join([*lines, _files([corpus.archive])])
    lines.append(f"languages: {corpus.source} to {corpus.target}")
    if isinstance(corpus, GeneratedCorpus):
        lines.append(f"train: {corpus.pairs:,} pairs by default")
    if isinstance(corpus, PublishedCorpus):
        lines += [_split(split, texts) for split, texts in corpus.splits.items()]
    lines.append(f"prepared: {', '.join(_steps(corpus))}")
    if isinstance(corpus, PublishedCorpus):
        lines.append(_files(corpus.upstream_files()))
    return "\n  ".join(lines)


def _pairs(texts: Iterable[ParallelText]) -> int | None:
    """How many pairs the texts give, before cleaning; None where it is not known."""
    total = 0
    for text in texts:
        if text.sentences is None:
            return None
        if text.every is not None:
            total += text.sentences // text.every
        elif text.except_every is not None:
            total += text.sentences - text.sentences // text.except_every
        else:
            total += text.sentences
    return total


def _split(split: str, texts: tuple[ParallelText, ...]) -> str:
    pairs = _pairs(texts)
    names = (text.name + _chosen(text) for text in texts)
    return f"{split}: {'' if pairs is None else f'{pairs:,} pairs: '}{', '.join(names)}"


def _chosen(text: ParallelText) -> str:
    if text.every is not None:
        return f" (1 pair in {text.every})"
    return "" if text.except_every is None else f" (all but 1 pair in {text.except_every})"


def _steps(corpus: Corpus) -> Iterator[str]:
    """The steps of preparation and their settings, in their order."""
    cleaning = corpus.defaults.cleaning
    if cleaning.entities == "unescape":
        yield "HTML entities unescaped"
    if cleaning.remove_non_printing:
        yield "non-printing characters removed"
    yield (
        "tokenised by its publisher" if corpus.defaults.tokenised else "punctuation normalised, tokenised as Moses does"
    )
    if dropped := ", ".join(_dropped(cleaning)):
        yield f"training pairs dropped ({dropped})"
    yield f"{corpus.defaults.size:,} subword units"


def _dropped(cleaning: CleaningOptions) -> Iterator[str]:
    if cleaning.empty:
        yield "empty"
    if cleaning.max_words is not None:
        yield f"more than {cleaning.max_words} words"
    if cleaning.max_characters is not None:
        yield f"more than {cleaning.max_characters} characters"
    if cleaning.max_ratio is not None:
        yield f"one side over {cleaning.max_ratio:g} times the other"
    if cleaning.languages:
        yield "another language"
    if cleaning.leaks:
        yield "in valid or test"
    if cleaning.duplicates:
        yield "repeated"


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
