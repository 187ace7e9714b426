"""Lists the corpora that `rskip prepare` knows: those in corpora.yaml and the generated ones."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from rskip.corpora.corpus import (
    SPLITS,
    CaptionCorpus,
    CaptionFormat,
    Corpus,
    Count,
    Format,
    ParallelText,
    PrepareDefaults,
    PublishedCorpus,
    Text,
    TextCorpus,
    UpstreamFile,
)
from rskip.corpora.numbers import numbers
from rskip.settings.check import convert
from rskip.settings.errors import SettingError, nearest
from rskip.settings.text import read_yaml

Words = Annotated[str, Meta(min_length=1)]
SideNames = Words | dict[str, Words]
"""The name of a file or member on each side: a name with {language} in it, or one name per language."""

Sum = Annotated[str, Meta(pattern="^[0-9a-f]{64}$", extra={"expected": "64 hexadecimal digits, in lower case"})]

_NAME = "^(.+)-([a-z]{2})-([a-z]{2})$"
Name = Annotated[str, Meta(pattern=_NAME, extra={"expected": "a name that ends in its languages, such as wmt14-en-de"})]


class FileEntry(Struct, frozen=True, kw_only=True):
    """A file under `files:`."""

    url: Annotated[
        str,
        Meta(pattern="^https://.*[^/]$", extra={"expected": "a URL that begins with https:// and names a file"}),
    ]
    size: Count | None = None
    sha256: Sum | None = None

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]


class TextEntry(Struct, frozen=True, kw_only=True):
    """A text of a split, in corpora.yaml."""

    name: Words
    file: SideNames
    member: SideNames | None = None
    format: Format = "lines"
    sentences: Count | None = None
    every: Count | None = None
    except_every: Count | None = None

    def __post_init__(self) -> None:
        if self.every is not None and self.except_every is not None:
            raise SettingError("except_every", "is given in addition to every", expected="one of them")


_TEXTS: Mapping[CaptionFormat, tuple[str, ...]] = {"flickr8k": ("captions", *SPLITS), "karpathy": ("captions",)}
"""The texts of each format of captions."""

Texts = Annotated[list[TextEntry], Meta(min_length=1, extra={"expected": "a list of one or more texts"})]


class CorpusEntry(Struct, frozen=True, kw_only=True):
    """A corpus in both directions, in corpora.yaml."""

    folder: Words
    homepage: Words
    licence: Words
    citation: Words
    defaults: PrepareDefaults = PrepareDefaults()
    splits: dict[str, Texts]

    def __post_init__(self) -> None:
        for split in SPLITS:
            if split not in self.splits:
                raise SettingError(f"splits.{split}", "is missing", advice=f"every corpus has {', '.join(SPLITS)}")
        for number, split in enumerate(split for split in self.splits if split not in SPLITS):
            if split != f"test{number + 1}":
                expected = f"{', '.join(SPLITS)}, and then test1, test2 and so on"
                raise SettingError(f"splits.{split}", "is a split", expected=expected)


class CaptionTextEntry(Struct, frozen=True, kw_only=True):
    """A text of captions or of a split's images, in corpora.yaml."""

    member: Words
    size: Count | None = None
    sha256: Sum | None = None


class CaptionEntry(Struct, frozen=True, kw_only=True):
    """Captions of images, in corpora.yaml."""

    folder: Words
    homepage: Words
    licence: Words
    citation: Words
    archive: Words
    format: CaptionFormat
    texts: dict[str, CaptionTextEntry]
    images: dict[str, Count]
    image_source: Words
    image_folders: tuple[Words, ...] = ("images",)


class TextCorpusEntry(Struct, frozen=True, kw_only=True):
    """A text for language models, in corpora.yaml."""

    folder: Words
    homepage: Words
    licence: Words
    citation: Words
    file: Words


class Registry(Struct, frozen=True, kw_only=True):
    """Content of corpora.yaml, whose first lines describe its keys. Files are grouped by folder of the cache."""

    files: dict[str, Annotated[list[FileEntry], Meta(min_length=1)]]
    corpora: dict[Name, CorpusEntry]
    captions: dict[str, CaptionEntry] = {}
    texts: dict[str, TextCorpusEntry] = {}


def read_corpora(path: Path) -> tuple[list[PublishedCorpus], list[CaptionCorpus], list[TextCorpus]]:
    """The corpora of a registry file. For each pair of languages the direction in its name comes first.

    :raises SettingError: an entry is wrong. The error names it and what was expected.
    """
    registry = convert(read_yaml(path), Registry, source=str(path))
    try:
        folders = {folder: _files(files, f"files.{folder}") for folder, files in registry.files.items()}
        corpora: dict[str, PublishedCorpus] = {}
        for name, entry in registry.corpora.items():
            for corpus in _both_directions(name, entry, folders):
                if corpora.setdefault(corpus.name, corpus) is not corpus:
                    raise SettingError(f"corpora.{name}", f"is {corpus.name} too, the name of another entry")
        captions = [_captions(name, entry, folders) for name, entry in registry.captions.items()]
        texts = [_text(name, entry, folders) for name, entry in registry.texts.items()]
        used = {(corpus.folder, file) for corpus in corpora.values() for file in corpus.upstream_files()}
        used |= {(corpus.folder, corpus.archive) for corpus in captions}
        used |= {(corpus.folder, corpus.file) for corpus in texts}
        for folder, files in folders.items():
            for name, file in files.items():
                if (folder, file) not in used:
                    raise SettingError(f"files.{folder}", f"has {name}, which no corpus uses")
    except SettingError as error:
        raise error.within(source=str(path)) from None
    return list(corpora.values()), captions, texts


def _files(entries: list[FileEntry], place: str) -> dict[str, UpstreamFile]:
    files: dict[str, UpstreamFile] = {}
    for entry in entries:
        if entry.name in files:
            both = f"{files[entry.name].url} and {entry.url}"
            raise SettingError(place, f"has two URLs for {entry.name}, {both}", expected="one")
        files[entry.name] = UpstreamFile(name=entry.name, url=entry.url, size=entry.size, sha256=entry.sha256)
    return files


def _both_directions(
    name: str, entry: CorpusEntry, folders: Mapping[str, Mapping[str, UpstreamFile]]
) -> Iterator[PublishedCorpus]:
    match = re.match(_NAME, name)
    assert match
    stem, *languages = match.groups()
    files = _of_folder(entry.folder, folders, f"corpora.{name}")
    splits = {
        split: tuple(
            _parallel_text(text, languages, files, f"corpora.{name}.splits.{split}[{number}]")
            for number, text in enumerate(texts)
        )
        for split, texts in entry.splits.items()
    }
    for source, target in (languages, reversed(languages)):
        yield PublishedCorpus(
            name=f"{stem}-{source}-{target}",
            source=source,
            target=target,
            homepage=entry.homepage,
            licence=entry.licence,
            citation=entry.citation,
            defaults=entry.defaults,
            folder=entry.folder,
            splits=splits,
        )


def _of_folder(
    folder: str, folders: Mapping[str, Mapping[str, UpstreamFile]], place: str
) -> Mapping[str, UpstreamFile]:
    if folder not in folders:
        raise SettingError.of_value(f"{place}.folder", folder, f"one of those under files: {', '.join(folders)}")
    return folders[folder]


def _captions(name: str, entry: CaptionEntry, folders: Mapping[str, Mapping[str, UpstreamFile]]) -> CaptionCorpus:
    files = _of_folder(entry.folder, folders, f"captions.{name}")
    if entry.archive not in files:
        expected = f"one of its folder's: {', '.join(files)}"
        raise SettingError.of_value(f"captions.{name}.archive", entry.archive, expected)
    for key, needed in (("texts", _TEXTS[entry.format]), ("images", SPLITS)):
        if set(given := getattr(entry, key)) != set(needed):
            raise SettingError.of_value(f"captions.{name}.{key}", sorted(given), ", ".join(needed))
    archive = files[entry.archive]
    return CaptionCorpus(
        name=name,
        homepage=entry.homepage,
        licence=entry.licence,
        citation=entry.citation,
        folder=entry.folder,
        archive=archive,
        format=entry.format,
        texts={
            key: UpstreamFile(name=text.member, url=archive.url, size=text.size, sha256=text.sha256)
            for key, text in entry.texts.items()
        },
        images=entry.images,
        image_source=entry.image_source,
        image_folders=entry.image_folders,
    )


def _text(name: str, entry: TextCorpusEntry, folders: Mapping[str, Mapping[str, UpstreamFile]]) -> TextCorpus:
    files = _of_folder(entry.folder, folders, f"texts.{name}")
    if entry.file not in files:
        expected = f"one of its folder's: {', '.join(files)}"
        raise SettingError.of_value(f"texts.{name}.file", entry.file, expected)
    return TextCorpus(
        name=name,
        homepage=entry.homepage,
        licence=entry.licence,
        citation=entry.citation,
        folder=entry.folder,
        file=files[entry.file],
    )


def _parallel_text(
    entry: TextEntry, languages: list[str], files: Mapping[str, UpstreamFile], place: str
) -> ParallelText:
    names = _of_each_side(entry.file, languages, f"{place}.file")
    members = {} if entry.member is None else _of_each_side(entry.member, languages, f"{place}.member")
    for name in names.values():
        if name not in files:
            raise SettingError.of_value(f"{place}.file", name, f"one of its folder's: {', '.join(files)}")
    sides = {
        language: Text(file=files[names[language]], member=members.get(language), format=entry.format)
        for language in languages
    }
    if sides[languages[0]] == sides[languages[1]]:
        raise SettingError(place, "has the same text for both languages", expected="{language} in its file or member")
    return ParallelText(
        name=entry.name,
        sides=sides,
        sentences=entry.sentences,
        every=entry.every,
        except_every=entry.except_every,
    )


def _of_each_side(names: str | dict[str, str], languages: list[str], place: str) -> dict[str, str]:
    if isinstance(names, str):
        return {language: names.replace("{language}", language) for language in languages}
    if set(names) != set(languages):
        raise SettingError.of_value(place, names, f"a name for each of {', '.join(languages)}")
    return names


_PARALLEL, _CAPTIONS, _OF_TEXT = read_corpora(Path(__file__).with_name("corpora.yaml"))

CORPORA: dict[str, Corpus] = {corpus.name: corpus for corpus in (*_PARALLEL, numbers("en", "de"), numbers("de", "en"))}

CAPTION_CORPORA: dict[str, CaptionCorpus] = {corpus.name: corpus for corpus in _CAPTIONS}

TEXT_CORPORA: dict[str, TextCorpus] = {corpus.name: corpus for corpus in _OF_TEXT}


def find_corpus(name: str) -> Corpus:
    """The parallel corpus `name`.

    :raises SettingError: the name is unknown (the error suggests similar ones) or is that of image captions.
    """
    if name in CORPORA:
        return CORPORA[name]
    if name in CAPTION_CORPORA:
        raise SettingError("", f"{name} has image captions", expected="a corpus of two languages")
    if name in TEXT_CORPORA:
        raise SettingError("", f"{name} is a text in one language", expected="a corpus of two languages")
    raise _unknown(name)


def find_caption_corpus(name: str) -> CaptionCorpus:
    """The caption corpus `name`.

    :raises SettingError: the name is unknown (the error suggests similar ones) or is that of a parallel corpus.
    """
    if name in CAPTION_CORPORA:
        return CAPTION_CORPORA[name]
    if name in CORPORA:
        raise SettingError("", f"{name} has two languages", expected=f"captions: {', '.join(CAPTION_CORPORA)}")
    raise _unknown(name)


def find_text_corpus(name: str) -> TextCorpus:
    """The text `name` for language models.

    :raises SettingError: the name is unknown (the error suggests similar ones) or is that of another corpus.
    """
    if name in TEXT_CORPORA:
        return TEXT_CORPORA[name]
    if name in CORPORA or name in CAPTION_CORPORA:
        kind = "two languages" if name in CORPORA else "image captions"
        raise SettingError("", f"{name} has {kind}", expected=f"a text: {', '.join(TEXT_CORPORA)}")
    raise _unknown(name)


def _unknown(name: str) -> SettingError:
    known = [*CORPORA, *CAPTION_CORPORA, *TEXT_CORPORA]
    near = [each for each in known if name and each.startswith(name.lower())] or nearest(name.lower(), known)
    hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
    ways = "`rskip prepare --list` lists all; for your own text, use `rskip prepare --source FILE --target FILE`"
    return SettingError("", f"unknown corpus {name!r}: {hint}{ways}")
