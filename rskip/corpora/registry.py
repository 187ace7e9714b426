"""Lists the corpora that `rskip prepare` knows: those in corpora.yaml and the generated ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from rskip.corpora.corpus import (
    CaptionCorpus,
    CleaningOptions,
    Corpus,
    ParallelText,
    PrepareDefaults,
    PublishedCorpus,
    Text,
    TextCorpus,
    UpstreamFile,
)
from rskip.corpora.numbers import NUMBERS_CORPORA
from rskip.settings.errors import SettingError, nearest
from rskip.settings.text import read_yaml

T = TypeVar("T")
_Files = Mapping[str, UpstreamFile]


def _files(entries: list[dict[str, Any]]) -> _Files:
    files = [UpstreamFile(name=entry["url"].rpartition("/")[2], **entry) for entry in entries]
    return {file.name: file for file in files}


def _both_directions(name: str, entry: dict[str, Any], files: _Files) -> Iterator[PublishedCorpus]:
    stem, *languages = name.rsplit("-", 2)
    defaults = dict(entry.get("defaults", {}))
    cleaning = CleaningOptions(**defaults.pop("cleaning", {}))
    shared = {
        **entry,
        "defaults": PrepareDefaults(cleaning=cleaning, **defaults),
        "splits": {
            split: tuple(_parallel_text(text, languages, files) for text in texts)
            for split, texts in entry["splits"].items()
        },
    }
    for source, target in (languages, reversed(languages)):
        yield PublishedCorpus(name=f"{stem}-{source}-{target}", source=source, target=target, **shared)


def _parallel_text(entry: dict[str, Any], languages: list[str], files: _Files) -> ParallelText:
    counts = {key: value for key, value in entry.items() if key not in ("file", "member", "format")}

    def of(language: str, key: str) -> Any:
        value = entry.get(key)  # a name with {language} in it, or one name per language
        return value.replace("{language}", language) if isinstance(value, str) else value and value[language]

    sides = {
        language: Text(
            file=files[of(language, "file")], member=of(language, "member"), format=entry.get("format", "lines")
        )
        for language in languages
    }
    return ParallelText(sides=sides, **counts)


def _captions(name: str, entry: dict[str, Any], files: _Files) -> CaptionCorpus:
    archive = files[entry["archive"]]
    texts = {
        key: UpstreamFile(name=text["member"], url=archive.url, size=text.get("size"), sha256=text.get("sha256"))
        for key, text in entry["texts"].items()
    }
    folders = tuple(entry.get("image_folders", ("images",)))
    return CaptionCorpus(name=name, **{**entry, "archive": archive, "texts": texts, "image_folders": folders})


_CONTENT: Any = read_yaml(Path(__file__).with_name("corpora.yaml"))  # its first lines describe its keys
_FOLDERS = {folder: _files(entries) for folder, entries in _CONTENT["files"].items()}
_PARALLEL = [
    corpus
    for name, entry in _CONTENT["corpora"].items()
    for corpus in _both_directions(name, entry, _FOLDERS[entry["folder"]])
]
CORPORA: dict[str, Corpus] = {corpus.name: corpus for corpus in (*_PARALLEL, *NUMBERS_CORPORA)}
CAPTION_CORPORA = {
    name: _captions(name, entry, _FOLDERS[entry["folder"]]) for name, entry in _CONTENT["captions"].items()
}
TEXT_CORPORA = {
    name: TextCorpus(name=name, **{**entry, "file": _FOLDERS[entry["folder"]][entry["file"]]})
    for name, entry in _CONTENT["texts"].items()
}


def find_corpus(name: str) -> Corpus:
    """The parallel corpus `name`.

    :raises SettingError: the name is unknown (the error suggests similar ones) or is that of another corpus.
    """
    return _find(name, CORPORA, "a corpus of two languages")


def find_caption_corpus(name: str) -> CaptionCorpus:
    """The caption corpus `name`; raises as `find_corpus`."""
    return _find(name, CAPTION_CORPORA, f"captions: {', '.join(CAPTION_CORPORA)}")


def find_text_corpus(name: str) -> TextCorpus:
    """The text `name` for language models; raises as `find_corpus`."""
    return _find(name, TEXT_CORPORA, f"a text: {', '.join(TEXT_CORPORA)}")


def _find(name: str, corpora: Mapping[str, T], expected: str) -> T:
    if name in corpora:
        return corpora[name]
    kinds: tuple[tuple[str, Mapping[str, object]], ...] = (
        ("two languages", CORPORA), ("image captions", CAPTION_CORPORA), ("a text in one language", TEXT_CORPORA),
    )  # fmt: skip
    if kind := next((kind for kind, others in kinds if name in others), None):
        raise SettingError("", f"{name} has {kind}", expected=expected)
    known = [each for _, others in kinds for each in others]
    near = [each for each in known if name and each.startswith(name.lower())] or nearest(name.lower(), known)
    hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
    ways = "`rskip prepare --list` lists all; for your own text, use `rskip prepare --source FILE --target FILE`"
    raise SettingError("", f"unknown corpus {name!r}: {hint}{ways}")
