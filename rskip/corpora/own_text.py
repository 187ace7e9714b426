"""Reads the user's own parallel text: two files that translate each other line by line, or a table of both sides."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

from rskip.corpora.corpus import Pair
from rskip.corpora.formats import TextFile, read_pairs
from rskip.files.packed import SUFFIXES
from rskip.settings.errors import shown

LANGUAGE = re.compile(r"[a-z]{2,3}(_[A-Za-z]{2,4})?")
_TWO_LETTERS = re.compile(r"(?P<stem>.+?)\.(?P<language>[a-z]{2})")
_BOTH = re.compile(r"(?P<stem>.*?)[._-]?(?P<source>[a-z]{2})-(?P<target>[a-z]{2})\.(tsv|txt|jsonl|json)")
_BREAKS = re.compile(r"\s*[\r\n]+\s*")


@dataclass(frozen=True)
class PairedFiles:
    """A file of source sentences and a file of their translations, one sentence per line."""

    source: TextFile
    target: TextFile

    @property
    def files(self) -> tuple[TextFile, ...]:
        return self.source, self.target

    @property
    def stem(self) -> str:
        """The source file's name without its language."""
        match = _match(_TWO_LETTERS, self.source)
        return match["stem"] if match else _name(self.source)

    @property
    def languages(self) -> tuple[str, str] | None:
        """The two-letter codes that the files' names end in (train.en, train.de.gz); None if a name has no code."""
        source, target = (_match(_TWO_LETTERS, file) for file in self.files)
        return (source["language"], target["language"]) if source and target else None

    def pairs(self, languages: tuple[str, str]) -> Iterator[Pair]:
        """Raw pairs."""
        return read_pairs(self.source, self.target, sentences=None)


@dataclass(frozen=True)
class Table:
    """One pair per line: tab-separated columns, or JSON objects (JSONL). The first line decides which.

    :param columns: columns of the source and of the target: numbers from 1, or names. The first line has the names of
        tab-separated columns. None: the columns that are named by the language codes, or else the first two columns
        of a tab-separated file, in the order that the file's name says.
    """

    file: TextFile
    columns: tuple[str, str] | None = None

    @property
    def files(self) -> tuple[TextFile, ...]:
        return (self.file,)

    @property
    def stem(self) -> str:
        match = _match(_BOTH, self.file)
        return (match["stem"] if match else "") or _name(self.file).partition(".")[0]

    @property
    def languages(self) -> tuple[str, str] | None:
        """The names of its columns if both are two-letter codes, else the codes in the file's name (news.en-de.tsv)."""
        if self.columns and all(re.fullmatch("[a-z]{2}", column) for column in self.columns):
            return self.columns
        match = _match(_BOTH, self.file)
        return (match["source"], match["target"]) if match else None

    @property
    def description(self) -> str:
        """The format of the file, for records."""
        return "table" + (f", columns {' and '.join(self.columns)}" if self.columns else "")

    def pairs(self, languages: tuple[str, str]) -> Iterator[Pair]:
        """Raw pairs. A line break within a JSON string becomes a space.

        :raises ValueError: a line lacks a column or is not a JSON object. The error names file and line.
        """
        lines = self.file.read()
        first = list(islice(lines, 1))
        if not first:
            raise ValueError(f"{self.file} is empty: expected one pair of sentences per line")
        if _json_object(first[0]) is not None:
            return self._of_json(chain(first, lines), self.columns or languages)
        cells = first[0].split("\t")
        first_two = ("2", "1") if self.languages == (languages[1], languages[0]) else ("1", "2")  # by the file's name
        columns = self.columns or (languages if set(languages) <= set(cells) else first_two)
        if all(column.isdecimal() for column in columns):
            source, target = map(int, columns)
            if not source or not target or source == target:
                raise ValueError(f"columns are {source} and {target}: expected two numbers from 1, as in --columns 1 2")
            return self._of_tabs(chain(first, lines), (source - 1, target - 1), 1)
        for column in columns:
            if column not in cells:
                problem = f"{self.file} has no column {column!r}: its first line holds {shown(cells)}"
                raise ValueError(f"{problem}: give names of its columns, or their numbers (--columns 1 2)")
        return self._of_tabs(lines, (cells.index(columns[0]), cells.index(columns[1])), 2)

    def _of_tabs(self, lines: Iterator[str], columns: tuple[int, int], first: int) -> Iterator[Pair]:
        for number, line in enumerate(lines, start=first):
            cells = line.split("\t")
            if max(columns) >= len(cells):
                expected = f"at least {max(columns) + 1}, separated by tabs"
                raise ValueError(f"{self.file}: line {number} has {len(cells)} columns: expected {expected}")
            yield cells[columns[0]], cells[columns[1]]

    def _of_json(self, lines: Iterator[str], keys: tuple[str, str]) -> Iterator[Pair]:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            if (row := _json_object(line)) is None:
                raise ValueError(f"{self.file}: line {number} is not a JSON object, as the first line is")
            if isinstance(nested := row.get("translation"), dict):  # the form of Hugging Face's datasets
                row = nested
            for key in keys:
                if not isinstance(row.get(key), str):
                    problem = f"line {number} has no text under the key {key!r}; its keys are {shown(list(row))}"
                    raise ValueError(f"{self.file}: {problem}: name two keys with --columns")
            yield _one_line(row[keys[0]]), _one_line(row[keys[1]])


OwnText = PairedFiles | Table


def _json_object(line: str) -> dict[str, Any] | None:
    if not line.lstrip().startswith("{"):
        return None
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _one_line(text: str) -> str:
    return _BREAKS.sub(" ", text).encode(errors="replace").decode()  # JSON may contain half a surrogate pair


def _name(file: TextFile) -> str:
    """The file's name without .gz, .xz, .zst or .bz2."""
    path = Path(str(file))
    return path.stem if path.suffix in SUFFIXES else path.name


def _match(pattern: re.Pattern[str], file: TextFile) -> re.Match[str] | None:
    return pattern.fullmatch(_name(file))


def paired_files(sources: Sequence[Path], targets: Sequence[Path]) -> list[OwnText]:
    """Pairs the n-th source file with the n-th target file. :raises ValueError: their numbers differ."""
    if len(sources) != len(targets):
        counts = f"{len(sources)} source files and {len(targets)} target files"
        raise ValueError(f"{counts} were given: expected equal numbers, because the n-th files are paired")
    pairs = zip(sources, targets, strict=True)
    return [PairedFiles(TextFile(Path(source)), TextFile(Path(target))) for source, target in pairs]


def files_of_prefixes(prefixes: Sequence[str], languages: tuple[str, str]) -> list[OwnText]:
    """The files PREFIX.<source> and PREFIX.<target> of each prefix, as in fairseq-preprocess. They may be compressed.
    """
    source, target = ([_of_prefix(f"{prefix}.{language}") for prefix in prefixes] for language in languages)
    return paired_files(source, target)


def _of_prefix(name: str) -> Path:
    for suffix in ("", *SUFFIXES):
        if (path := Path(name + suffix)).exists():
            return path
    raise FileNotFoundError(f"no file {name}, nor a compressed one ({', '.join(SUFFIXES)}): check prefix and languages")


def choose_languages(texts: Sequence[OwnText], given: Sequence[str] | None) -> tuple[str, str]:
    """Source and target language: the given codes, or else those in the names of the files.

    :raises ValueError: the codes are neither given nor in the names, the names disagree, or both codes are the same.
    """
    said = {found: text for text in texts if (found := text.languages) is not None}
    if given is None and not said:
        names = " and ".join(str(file) for file in texts[0].files)
        unnamed = f"the names of {names} don't end in language codes"
        raise ValueError(f"unknown languages: {unnamed}: give them, such as --languages en de")
    if given is None and len(said) > 1:
        (first, one), (second, other) = list(said.items())[:2]
        says = f"{one.files[0]} says {' and '.join(first)}, but {other.files[0]} says {' and '.join(second)}"
        advice = "give the sides in the same order, or --languages"
        raise ValueError(f"the files disagree about the languages: {says}: {advice}")
    source, target = given or next(iter(said))
    for language in (source, target):
        if not LANGUAGE.fullmatch(language):
            raise ValueError(f"language {shown(language)}: expected a code, such as en, de or zh")
    if source == target:
        raise ValueError(
            f"both languages are {source}: fairseq names files by language, so give two codes that differ (--languages)"
        )
    if isinstance(text := said.get((target, source)), PairedFiles):
        files = " and ".join(map(str, text.files))
        raise ValueError(f"{files} are {target} and {source} by their names: swap source and target, or --languages")
    return source, target
