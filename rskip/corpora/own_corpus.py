"""Defines a corpus of the user's own files: its content, its default preparation, and a report on it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rskip.corpora.cleaning.languages import SHORTEST_CHARACTERS, knows_language, likely_language
from rskip.corpora.corpus import CleaningOptions, Corpus, PrepareDefaults
from rskip.corpora.formats import TextFile
from rskip.corpora.own_text import OwnText, PairedFiles, Table
from rskip.files.checksum import sha256_file
from rskip.machine.progress import Progress
from rskip.machine.terminal import columns
from rskip.text.language_codes import short_code

HELD_OUT = ("valid", "test")
LARGEST_SPLIT, SPLIT_SHARE = 2_000, 20
"""A validation or test set that is split off gets one pair in SPLIT_SHARE, at most LARGEST_SPLIT pairs."""

SIZES = ((5_000, 2_000), (10_000, 4_000), (200_000, 10_000), (1_000_000, 16_000))
LARGEST_SIZE = 32_000
"""Number of subword units by training pairs: 2,000 units below 5,000 pairs, and so on. From a million pairs on,
LARGEST_SIZE."""

WITHOUT_SPACES = {"bo", "bod", "cmn", "dz", "dzo", "ja", "km", "lo", "my", "th", "yue", "zh"}
"""Languages written without spaces between words. Limits and ratios in words are meaningless for them."""

SAMPLE = 100
"""Number of sentences per side that language detection reads."""

LONGEST_HELD_OUT = 20_000
"""Maximum characters per sentence of a validation or test set. These sets are never cleaned."""

_HEADER = re.compile("source|target|src|tgt|trg|input|output|text|translation|sentence[ _]?[12]?|[a-z]{2}")
_QUOTED = re.compile('".*"".*"')


@dataclass(frozen=True, kw_only=True)
class TextSummary:
    """Statistics of one text.

    :param name: unique among the texts of its split.
    :param words: number of words of source and target, separated by spaces.
    :param characters: the characters that occur in it.
    :param remarks: warnings about it, one line each.
    """

    name: str
    text: OwnText
    pairs: int
    words: tuple[int, int]
    characters: frozenset[str] = field(repr=False)
    remarks: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class OwnCorpus(Corpus):
    """A corpus of the user's own files. `read_own_corpus` makes it.

    :param texts: the texts of train and, if they are given, of valid, test, test1, ...
    :param split_off: default number of pairs that valid and test take from train if they are not given.
    :param inputs: name, size and checksum of each file. The keys name its use, such as "train.en".
    """

    texts: Mapping[str, tuple[TextSummary, ...]]
    split_off: Mapping[str, int]
    inputs: Mapping[str, Mapping[str, str | int]] = field(repr=False)

    @property
    def choices(self) -> dict[str, int]:
        return {**self.split_off, "seed": 1} if self.split_off else {}

    @property
    def split_names(self) -> list[str]:
        """train, valid, and the test sets in their order."""
        return list(dict.fromkeys(["train", "valid", "test", *self.texts]))


def read_own_corpus(texts: Mapping[str, Sequence[OwnText]], *, source: str, target: str) -> OwnCorpus:
    """Reads every text once, so that bad input is found before any work.

    :param texts: the texts of each split. Those of train are concatenated, and so are those of valid, which may be
        missing. Each text of test becomes a test set.
    :param source: code of the language translated from, such as "en".
    :raises ValueError: an empty or damaged file, sides of unequal length, a file that is given twice.
    :raises OSError: a file can't be read.
    """
    given = {"train": texts["train"], **({"valid": texts["valid"]} if texts.get("valid") else {})}
    given |= {f"test{number or ''}": [text] for number, text in enumerate(texts.get("test", ()))}
    inputs, read = _inputs(given, (source, target)), dict[str, tuple[TextSummary, ...]]()
    for split, of_split in given.items():
        names: list[str] = []
        for text in of_split:
            numbered = (f"{text.stem}{f'-{number}' if number > 1 else ''}" for number in itertools.count(1))
            names.append(next(name for name in numbered if name not in names))
        named = zip(names, of_split, strict=True)
        read[split] = tuple(_read(split, name, text, (source, target)) for name, text in named)
    pairs = sum(summary.pairs for summary in read["train"])
    characters = frozenset[str]().union(*(summary.characters for summary in read["train"]))
    share = min(LARGEST_SPLIT, max(1, pairs // SPLIT_SHARE))
    return OwnCorpus(
        name=f"own-{source}-{target}",
        source=source,
        target=target,
        homepage="",
        licence="that of the original files",
        citation="",
        defaults=PrepareDefaults(
            cleaning=default_cleaning(source, target),
            subwords="sentencepiece-bytes",  # text in any language decodes to what was encoded
            size=default_size(pairs, characters=len(characters)),
        ),
        texts=read,
        split_off={split: share for split in HELD_OUT if split not in read},
        inputs=inputs,
    )


def default_size(pairs: int, *, characters: int) -> int:
    """The default number of subword units for this number of training pairs.

    :param characters: number of different characters. Each of them is a unit of SentencePiece.
    """
    size = next((size for below, size in SIZES if pairs < below), LARGEST_SIZE)
    return max(size, -(-2 * characters // 1_000) * 1_000)


def default_cleaning(source: str, target: str) -> CleaningOptions:
    """The default cleaning. Its limits are generous: they drop only pairs that are useless for any training."""
    spaces = not any(map(_lacks_spaces, (source, target)))
    return CleaningOptions(
        empty=True,
        max_words=250 if spaces else 0,
        max_characters=5_000,
        max_ratio=9 if spaces else 0,
        duplicates=True,
        leaks=True,
    )


def _lacks_spaces(language: str) -> bool:
    return short_code(language).partition("_")[0] in WITHOUT_SPACES


def _inputs(given: Mapping[str, Sequence[OwnText]], languages: tuple[str, str]) -> dict[str, dict[str, str | int]]:
    """:raises ValueError: the two sides of a text are one file, or two texts are the same."""
    inputs: dict[str, dict[str, str | int]] = {}
    seen: dict[tuple[str, ...], str] = {}
    for split, texts in given.items():
        for number, text in enumerate(texts, start=1):
            for file in text.files:
                if file.path.exists() and not file.path.is_file() and not file.path.is_dir():
                    raise ValueError(f"{file} is a pipe, but it is read several times: save its text to a file")
            sums = [sha256_file(file.path) for file in text.files]
            names = " and ".join(map(str, text.files))
            if len(set(sums)) < len(sums):
                raise ValueError(f"{names} have the same content: expected a source file and its translation")
            if earlier := seen.get(tuple(sums)):
                raise ValueError(f"{names} ({split}) and {earlier} have the same content: give each file once")
            seen[tuple(sums)] = f"{names} ({split})"
            sides = languages if isinstance(text, PairedFiles) else [text.description]
            for file, side, sum_ in zip(text.files, sides, sums, strict=True):
                key = f"{split}.{side}" + (f".{number}" if len(texts) > 1 else "")
                inputs[key] = {"file": Path(str(file)).name, "size": file.path.stat().st_size, "sha256": sum_}
    return inputs


def _read(split: str, name: str, text: OwnText, languages: tuple[str, str]) -> TextSummary:
    pairs, words, quoted, first = 0, [0, 0], 0, ("", "")
    characters: set[str] = set()
    beginning: tuple[list[str], list[str]] = ([], [])  # for language detection
    is_table = isinstance(text, Table)
    with Progress(f"read {name}", unit=" pairs") as bar:
        for pair in text.pairs(languages):
            first, pairs = first if pairs else pair, pairs + 1
            bar.update()
            quoted += is_table and any(map(_QUOTED.fullmatch, pair))
            for side, sentence in enumerate(pair):
                words[side] += len(sentence.split())
                characters.update(sentence)
                if len(sentence) >= SHORTEST_CHARACTERS and len(beginning[side]) < SAMPLE:
                    beginning[side].append(sentence[:LONGEST_HELD_OUT])
                if split != "train" and len(sentence) > LONGEST_HELD_OUT:
                    raise ValueError(
                        f"{text.files[min(side, len(text.files) - 1)]}: sentence {pairs:,} has {len(sentence):,} "
                        f"characters: expected at most {LONGEST_HELD_OUT:,} in a validation or test set"
                    )
    if not pairs:
        raise ValueError(f"{text.files[0]} has no pairs: expected one per line below the names of columns")
    remarks = _check_languages(text.files, beginning, languages)
    if is_table and all(_HEADER.fullmatch(cell.strip().lower()) for cell in first):
        header = f"its first pair, {' '.join(first)}, may be the names of columns"
        remarks.append(f"{text.files[0]}: {header}: if so, give them with --columns")
    if quoted:
        kept = f"{quoted:,} pairs have quotes as in CSV, which are kept"
        remarks.append(f"{text.files[0]}: {kept}: save the table without quotes")
    return TextSummary(
        name=name,
        text=text,
        pairs=pairs,
        words=(words[0], words[1]),
        characters=frozenset(characters),
        remarks=tuple(remarks),
    )


def _check_languages(
    files: Sequence[TextFile], beginning: tuple[list[str], list[str]], languages: tuple[str, str]
) -> list[str]:
    """Warnings about sides that seem to be in a wrong language. Empty without py3langid."""
    found = [likely_language(sentences) for sentences in beginning]
    if found == [languages[1], languages[0]]:
        names = " and ".join(map(str, files))
        says = f"its source side is {found[0]}, its target side {found[1]}"
        if len(files) > 1:
            says = f"the first is {found[0]}, the second {found[1]}"
        raise ValueError(f"{names}: {says}, expected {languages[0]} and {languages[1]}: swap source and target")
    places = [*map(str, files)] if len(files) > 1 else [f"the {side} of {files[0]}" for side in ("source", "target")]
    return [
        f"{place} looks like {language}, not {code}: check it"
        for place, language, code in zip(places, found, languages, strict=True)
        if language not in (None, code) and knows_language(code)
    ]


def reading_report(corpus: OwnCorpus, made: Mapping[str, Any]) -> str:
    """A table of the files, the remarks, and the sizes of the sets that were split off, without a last line feed.

    :param made: the content of the prepared folder's corpus.json.
    """
    rows: list[tuple[str, ...]] = [("read", "file", "pairs", f"words {corpus.source}", f"words {corpus.target}")]
    for split, texts in corpus.texts.items():
        for summary in texts:
            files = ", ".join(str(file) for file in summary.text.files)
            rows.append((split, files, f"{summary.pairs:,}", *(f"{count:,}" for count in summary.words)))
    remarks = [remark for texts in corpus.texts.values() for summary in texts for remark in summary.remarks]
    lines = [columns(rows, left=(0, 1)), *remarks]
    if corpus.split_off:
        counts = ", ".join(f"{split} {made['options'][split]:,}" for split in corpus.split_off)
        line = f"split off the training pairs: {counts} (seed {made['options']['seed']})"
        if left_out := made["left_out"]:
            line += f"; dropped: {left_out:,} other pairs with the same source sentences"
        lines.append(line)
    sentences, equal = made["round_trip"]["sentences"], made["round_trip"]["equal"]
    line = f"encoded and decoded, {equal:,} of {sentences:,} {corpus.target} sentences of valid stay the same"
    lines.append(line if equal == sentences else f"{line}: the others can never be translated exactly")
    for language in sorted(filter(_lacks_spaces, (corpus.source, corpus.target))):
        if made["options"].get("subwords") == "bpe":
            lines.append(f"{language} is written without spaces: --subword sentencepiece-bytes may be better")
    return "\n".join(lines)
