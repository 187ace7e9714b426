"""Everything that `rskip inspect` says of a binarised corpus."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rskip.corpora.inspection.data_folder import DataFolder, find_data
from rskip.corpora.inspection.lengths import LengthFigures, PairLengths, RatioFigures, length_figures, ratio_figures
from rskip.corpora.inspection.mmap_sentences import Integers, MmapSentences
from rskip.corpora.inspection.pairs import LopsidedPairs, PairReader, PairText, decoders, random_rows
from rskip.corpora.inspection.vocabulary import VocabularyFigures, vocabulary_figures
from rskip.corpora.record import read_record
from rskip.text.dictionary import Dictionary

CLEANING_FILE = "cleaning.json"
_ROWS_AT_ONCE = 1 << 16

Sides = tuple[MmapSentences, MmapSentences]


@dataclass(frozen=True, kw_only=True)
class SideFigures:
    """One language of a split. unknown_rate: of its tokens; None where it has none."""

    lengths: LengthFigures
    unknown: int
    unknown_rate: float | None


@dataclass(frozen=True, kw_only=True)
class SplitFigures:
    """A split. sides, ratio: empty and None where it has no sentences."""

    sentences: int
    sides: dict[str, SideFigures]
    ratio: RatioFigures | None


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """Figures, examples, and what the picture is drawn from.

    cleaning: content of cleaning.json; corpus: what corpus.json names. None where there is no such file.
    shown_split: the one that lopsided, examples and the picture are of: train, or else the first.
    pair_lengths: of the split shown.
    train_counts: how often each index of each language's dictionary occurs in train; empty without train.
    """

    data: DataFolder
    corpus: dict[str, Any] | None
    cleaning: dict[str, Any] | None
    splits: dict[str, SplitFigures]
    joint_dictionary: bool
    vocabulary: dict[str, VocabularyFigures]
    shown_split: str
    lopsided: list[PairText]
    examples: list[PairText]
    pair_lengths: PairLengths
    train_counts: dict[str, Integers]

    def to_dict(self) -> dict[str, Any]:
        """All that was found, for JSON."""
        return {
            "data": str(self.data.path),
            "source_language": self.data.source,
            "target_language": self.data.target,
            "shards": self.data.shards,
            "corpus": self.corpus,
            "cleaning": self.cleaning,
            "splits": {name: asdict(figures) for name, figures in self.splits.items()},
            "joint_dictionary": self.joint_dictionary,
            "vocabulary": {language: asdict(figures) for language, figures in self.vocabulary.items()},
            "shown_split": self.shown_split,
            "lopsided": [asdict(pair) for pair in self.lopsided],
            "examples": [asdict(pair) for pair in self.examples],
        }


def inspect_data(folder: str | Path, *, lopsided: int = 3, examples: int = 3, seed: int = 1) -> Inspection:
    """Reads a folder that `rskip prepare` or fairseq-preprocess made, in blocks, so that memory stays flat.

    :param lopsided: how many of the most lopsided pairs to give.
    :param examples: how many random pairs to give.
    :param seed: draws them.
    :raises FileNotFoundError: the folder or a file in it is missing.
    :raises ValueError: it holds something else, or a file is damaged; says which, and what to do.
    """
    data = find_data(folder)
    dictionaries = tuple(Dictionary.load(data.dictionaries[language]) for language in data.languages)
    source, target = dictionaries
    shown = next(iter(data.splits))
    most_lopsided = LopsidedPairs(lopsided)
    splits, lengths, counts = {}, {}, {}
    parts = {split: [_open_part(data, split, part) for part in places] for split, places in data.splits.items()}
    for split in data.splits:
        lengths[split], counts[split] = _read_split(
            parts[split], data, (len(source), len(target)), most_lopsided if split == shown else LopsidedPairs(0)
        )
        splits[split] = _split_figures(data.languages, lengths[split], counts[split])
    train_counts = dict(zip(data.languages, counts["train"], strict=True)) if "train" in counts else {}
    reader = PairReader(parts[shown], (source, target), decoders(data.path / "text", data.languages))
    rows = random_rows(splits[shown].sentences, keep=examples, seed=seed)
    return Inspection(
        data=data,
        corpus=_corpus(data.path),
        cleaning=_cleaning(data.path),
        splits=splits,
        joint_dictionary=source.tokens == target.tokens,
        vocabulary={
            language: vocabulary_figures(dictionary, train_counts.get(language))
            for language, dictionary in zip(data.languages, dictionaries, strict=True)
        },
        shown_split=shown,
        lopsided=[reader.read(row) for row in most_lopsided.rows],
        examples=[reader.read(row) for row in rows],
        pair_lengths=lengths[shown],
        train_counts=train_counts,
    )


def _open_part(data: DataFolder, split: str, part: Path) -> Sides:
    """Both sides of a part of a split."""
    source, target = (MmapSentences(data.prefix(part, split, language)) for language in data.languages)
    if len(source) != len(target):
        raise ValueError(
            f"{source.index} has {len(source):,} sentences and {target.index.name} {len(target):,}: "
            "expected as many: binarise both again"
        )
    return source, target


def _read_split(
    parts: list[Sides], data: DataFolder, vocabularies: tuple[int, int], lopsided: LopsidedPairs
) -> tuple[PairLengths, tuple[Integers, Integers]]:
    """Lengths of a split's pairs, and how often each index occurs on each side."""
    pairs, first = PairLengths(), 0
    counts = (np.zeros(vocabularies[0], dtype=np.int64), np.zeros(vocabularies[1], dtype=np.int64))
    for source, target in parts:
        for start in range(0, len(source), _ROWS_AT_ONCE):
            stop = min(start + _ROWS_AT_ONCE, len(source))
            lengths = [side.lengths(start, stop, end_mark=Dictionary.eos_index) for side in (source, target)]
            pairs.add(lengths[0], lengths[1])
            lopsided.add(first + start, lengths[0], lengths[1])
            for side, language, found in zip((source, target), data.languages, counts, strict=True):
                dictionary = data.dictionaries[language]
                found += side.counts(start, stop, vocabulary=len(found), dictionary=dictionary)
        first += len(source)
    return pairs, counts


def _split_figures(languages: tuple[str, str], pairs: PairLengths, counts: tuple[Integers, Integers]) -> SplitFigures:
    sentences = int(pairs.counts.sum())
    if not sentences:
        return SplitFigures(sentences=0, sides={}, ratio=None)
    sides = {}
    for number, language in enumerate(languages):
        lengths = length_figures(*pairs.side(number))
        unknown = int(counts[number][Dictionary.unk_index])
        rate = unknown / lengths.tokens if lengths.tokens else None
        sides[language] = SideFigures(lengths=lengths, unknown=unknown, unknown_rate=rate)
    return SplitFigures(sentences=sentences, sides=sides, ratio=ratio_figures(pairs))


def _corpus(folder: Path) -> dict[str, Any] | None:
    """Name and options of the corpus, of which corpus.json tells."""
    record = read_record(folder)
    return record and {"name": record.get("corpus"), "options": record.get("options")}


def _cleaning(folder: Path) -> dict[str, Any] | None:
    """What cleaning.json says.

    :raises ValueError: it can't be read.
    """
    path = folder / CLEANING_FILE
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} is not a report of `rskip prepare`: expected a JSON object")
    return content
