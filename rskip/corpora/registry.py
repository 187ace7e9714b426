"""The corpora that `rskip prepare` knows: those of corpora.yaml, and those that are generated."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from rskip.corpora.corpus import (
    SPLITS,
    Corpus,
    Count,
    Format,
    ParallelText,
    PrepareDefaults,
    PublishedCorpus,
    Text,
    UpstreamFile,
)
from rskip.corpora.numbers import numbers
from rskip.settings.check import convert
from rskip.settings.errors import SettingError, nearest
from rskip.settings.text import read_yaml

Words = Annotated[str, Meta(min_length=1)]
SideNames = Words | dict[str, Words]
"""What a file or a member is called on each side: a name with {language} in it, or one name a language."""

Sum = Annotated[str, Meta(pattern="^[0-9a-f]{64}$", extra={"expected": "64 hexadecimal digits, in lower case"})]

_NAME = "^(.+)-([a-z]{2})-([a-z]{2})$"
Name = Annotated[str, Meta(pattern=_NAME, extra={"expected": "a name that ends in its languages, as wmt14-en-de"})]


class FileEntry(Struct, frozen=True, kw_only=True):
    """A file under `files:`."""

    url: Annotated[
        str,
        Meta(pattern="^https://.*[^/]$", extra={"expected": "an address that begins with https:// and names a file"}),
    ]
    size: Count | None = None
    sha256: Sum | None = None

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]


class TextEntry(Struct, frozen=True, kw_only=True):
    """A text of a split."""

    name: Words
    file: SideNames
    member: SideNames | None = None
    format: Format = "lines"
    sentences: Count | None = None
    every: Count | None = None
    except_every: Count | None = None

    def __post_init__(self) -> None:
        if self.every is not None and self.except_every is not None:
            raise SettingError("except_every", "is given besides every", expected="one of them")


Texts = Annotated[list[TextEntry], Meta(min_length=1, extra={"expected": "a list of one text or more"})]


class CorpusEntry(Struct, frozen=True, kw_only=True):
    """Both directions of a corpus."""

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


class Registry(Struct, frozen=True, kw_only=True):
    """corpora.yaml, whose head says what each key means. Files are listed by the folder of the cache."""

    files: dict[str, Annotated[list[FileEntry], Meta(min_length=1)]]
    corpora: dict[Name, CorpusEntry]


def read_corpora(path: Path) -> list[PublishedCorpus]:
    """The corpora of a registry file: of each entry the direction that it is called by, and then the other.

    :raises SettingError: the file breaks its own rules; names the entry and what was expected.
    """
    registry = convert(read_yaml(path), Registry, source=str(path))
    try:
        folders = {folder: _files(files, f"files.{folder}") for folder, files in registry.files.items()}
        corpora: dict[str, PublishedCorpus] = {}
        for name, entry in registry.corpora.items():
            for corpus in _both_directions(name, entry, folders):
                if corpora.setdefault(corpus.name, corpus) is not corpus:
                    raise SettingError(f"corpora.{name}", f"is {corpus.name} too, which another entry is already")
        used = {(corpus.folder, file) for corpus in corpora.values() for file in corpus.upstream_files()}
        for folder, files in folders.items():
            for name, file in files.items():
                if (folder, file) not in used:
                    raise SettingError(f"files.{folder}", f"has {name}, which no corpus uses")
    except SettingError as error:
        raise error.within(source=str(path)) from None
    return list(corpora.values())


def _files(entries: list[FileEntry], place: str) -> dict[str, UpstreamFile]:
    files: dict[str, UpstreamFile] = {}
    for entry in entries:
        if entry.name in files:
            both = f"{files[entry.name].url} and {entry.url}"
            raise SettingError(place, f"has two addresses for {entry.name}, {both}", expected="one")
        files[entry.name] = UpstreamFile(name=entry.name, url=entry.url, size=entry.size, sha256=entry.sha256)
    return files


def _both_directions(
    name: str, entry: CorpusEntry, folders: Mapping[str, Mapping[str, UpstreamFile]]
) -> Iterator[PublishedCorpus]:
    match = re.match(_NAME, name)
    assert match
    stem, *languages = match.groups()
    if entry.folder not in folders:
        expected = f"one of those under files: {', '.join(folders)}"
        raise SettingError.of_value(f"corpora.{name}.folder", entry.folder, expected)
    splits = {
        split: tuple(
            _parallel_text(text, languages, folders[entry.folder], f"corpora.{name}.splits.{split}[{number}]")
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


CORPORA: dict[str, Corpus] = {
    corpus.name: corpus
    for corpus in (
        *read_corpora(Path(__file__).with_name("corpora.yaml")),
        numbers("en", "de"),
        numbers("de", "en"),
    )
}


def find_corpus(name: str) -> Corpus:
    """The corpus called `name`.

    :raises SettingError: unknown name; says the nearest known ones.
    """
    if name in CORPORA:
        return CORPORA[name]
    near = [known for known in CORPORA if name and known.startswith(name.lower())] or nearest(name.lower(), CORPORA)
    hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
    raise SettingError("", f"unknown corpus {name!r}: {hint}`rskip prepare --list` shows all")
