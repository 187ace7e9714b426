"""The registry file, corpora.yaml, to corpora."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rskip.corpora.corpus import SPLITS, ParallelText, PrepareDefaults, PublishedCorpus, Text, UpstreamFile
from rskip.corpora.formats import FORMATS
from rskip.corpora.strict_yaml import as_list, as_mapping, as_record, as_text, count_of, load_yaml
from rskip.settings.check import convert

Files = Mapping[str, UpstreamFile]
"""The files of a folder of the cache, by name."""


def read_corpora(path: Path) -> list[PublishedCorpus]:
    """The corpora of a registry file: of each entry the direction that it is called by, and then the other.

    :raises ValueError: the file breaks its own rules; one line that names the entry and what was expected.
    """
    content = as_record(load_yaml(path), path.name, required=("files", "corpora"))
    folders = {
        folder: _read_files(listed, f"{path.name}: files of {folder}")
        for folder, listed in as_mapping(content["files"], f"{path.name}: files").items()
    }
    corpora: dict[str, PublishedCorpus] = {}
    for name, entry in as_mapping(content["corpora"], f"{path.name}: corpora").items():
        for corpus in _read_entry(name, entry, f"{path.name}: {name}", folders):
            if corpora.setdefault(corpus.name, corpus) is not corpus:
                raise ValueError(f"{path.name}: {name}: another entry is {corpus.name} already")
    used = {(corpus.folder, file) for corpus in corpora.values() for file in corpus.upstream_files()}
    for folder, files in folders.items():
        for file in files.values():
            if (folder, file) not in used:
                raise ValueError(f"{path.name}: files of {folder}: no corpus uses {file.name}")
    return list(corpora.values())


def _read_files(listed: Any, place: str) -> dict[str, UpstreamFile]:
    files: dict[str, UpstreamFile] = {}
    for number, item in enumerate(as_list(listed, place), start=1):
        values = as_record(item, f"{place}: number {number}", required=("url",), optional=("size", "sha256"))
        url = as_text(values["url"], f"{place}: number {number}: url")
        name = url.rpartition("/")[2]
        if not url.startswith("https://") or not name:
            raise ValueError(f"{place}: {url}: expected an address that begins with https:// and ends in a file's name")
        if name in files:
            raise ValueError(f"{place}: {name} has two addresses, {files[name].url} and {url}: expected one")
        sha256 = values.get("sha256")
        if sha256 is not None and not (isinstance(sha256, str) and re.fullmatch("[0-9a-f]{64}", sha256)):
            raise ValueError(f"{place}: {name}: sha256 is {sha256}: expected 64 hexadecimal digits, in lower case")
        files[name] = UpstreamFile(name=name, url=url, size=count_of(values, "size", f"{place}: {name}"), sha256=sha256)
    return files


def _read_entry(name: str, entry: Any, place: str, folders: Mapping[str, Files]) -> Iterator[PublishedCorpus]:
    """Both directions of an entry."""
    match = re.fullmatch("(.+)-([a-z]{2})-([a-z]{2})", name)
    if not match:
        raise ValueError(f"{place}: expected a name that ends in its languages, such as wmt14-en-de")
    stem, *languages = match.groups()
    described = ("homepage", "licence", "citation")
    values = as_record(entry, place, required=("folder", *described, "splits"), optional=("defaults",))
    folder = as_text(values["folder"], f"{place}: folder")
    if folder not in folders:
        raise ValueError(f"{place}: folder {folder} is not one of those under files: {', '.join(folders)}")
    splits = as_mapping(values["splits"], f"{place}: splits")
    _check_names(list(splits), place)
    texts = {
        split: tuple(
            _read_text(item, f"{place}: {split}: number {number}", languages, folders[folder])
            for number, item in enumerate(as_list(listed, f"{place}: {split}"), start=1)
        )
        for split, listed in splits.items()
    }
    for source, target in (languages, reversed(languages)):
        yield PublishedCorpus(
            name=f"{stem}-{source}-{target}",
            source=source,
            target=target,
            **{key: as_text(values[key], f"{place}: {key}") for key in described},
            defaults=convert(values.get("defaults", {}), PrepareDefaults, name="defaults", source=place),
            folder=folder,
            splits=texts,
        )


def _check_names(splits: list[str], place: str) -> None:
    """:raises ValueError: the splits are not train, valid, test, and test1, test2 and so on with none left out."""
    for split in SPLITS:
        if split not in splits:
            raise ValueError(f"{place}: no split {split}: every corpus has {', '.join(SPLITS)}")
    further = [split for split in splits if split not in SPLITS]
    for number, split in enumerate(further, start=1):
        if split != f"test{number}":
            raise ValueError(f"{place}: split {split}: expected {', '.join(SPLITS)}, and then test1, test2 and so on")


def _read_text(item: Any, place: str, languages: list[str], files: Files) -> ParallelText:
    optional = ("member", "format", "sentences", "every", "except_every")
    values = as_record(item, place, required=("name", "file"), optional=optional)
    name = as_text(values["name"], f"{place}: name")
    place = f"{place}, {name}"
    names = _each_side(values["file"], f"{place}: file", languages)
    members = _each_side(values["member"], f"{place}: member", languages) if "member" in values else {}
    text_format = values.get("format", "lines")
    if text_format not in FORMATS:
        raise ValueError(f"{place}: format {text_format}: expected one of {', '.join(FORMATS)}")
    for file in names.values():
        if file not in files:
            raise ValueError(f"{place}: file {file} is not one of its folder's: {', '.join(files)}")
    sides = {
        language: Text(file=files[names[language]], member=members.get(language), format=text_format)
        for language in languages
    }
    if sides[languages[0]] == sides[languages[1]]:
        raise ValueError(f"{place}: both languages have the same text: expected {{language}} in its file or member")
    counts = {key: count_of(values, key, place) for key in ("sentences", "every", "except_every")}
    if counts["every"] is not None and counts["except_every"] is not None:
        raise ValueError(f"{place}: every and except_every are both given: expected one of them")
    return ParallelText(name=name, sides=sides, **counts)


def _each_side(value: Any, place: str, languages: list[str]) -> dict[str, str]:
    """What a file or a member is called on each side: a name with {language} in it, or one name a language."""
    if isinstance(value, str):
        return {language: value.replace("{language}", language) for language in languages}
    named = as_record(value, place, required=languages)
    return {language: as_text(named[language], f"{place}: {language}") for language in languages}
