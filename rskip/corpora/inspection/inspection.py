"""Computes the statistics of a binarised corpus that `rskip inspect --json` prints."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from rskip.corpora.cleaning import CleaningReport
from rskip.corpora.inspection.binarised import DataFolder, Integers, MmapSentences, find_data
from rskip.corpora.record import CLEANING_FILE, read_corpus_record
from rskip.extras import extra
from rskip.text.dictionary import Dictionary
from rskip.text.pipeline import CONFIG_FILE, TextPipeline

with extra("translation", what="a corpus of text"):
    import numpy as np

PERCENTS = (5, 25, 75, 95, 99)
COVERAGES = (50, 90, 99, 100)
SPECIAL = 4
_ROWS_AT_ONCE = 1 << 14

Statistics = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """The result of an inspection.

    :param statistics: the output of `--json`.
    :param pair_lengths: lengths in the shown split, which is train or else the first one.
    :param train_counts: counts of the indices of each language's dictionary in train; empty without train.
    """

    data: DataFolder
    statistics: Statistics
    pair_lengths: PairLengths
    train_counts: dict[str, Integers]

    @property
    def shown(self) -> Statistics:
        """The statistics of the shown split."""
        return self.statistics["splits"][self.statistics["shown_split"]]


class PairLengths(NamedTuple):
    """The different pairs of lengths and their counts. All statistics of lengths follow from them."""

    source: Integers
    target: Integers
    counts: Integers

    def side(self, number: int) -> tuple[Integers, Integers]:
        """The lengths on one side (0: source, 1: target) in ascending order, and their counts."""
        lengths, places = np.unique(self[number], return_inverse=True)
        return lengths, np.bincount(places, self.counts).astype(np.int64)


class Split:
    """The sentence pairs of a split. They are read once, in blocks, so memory is constant.

    `lengths` are the pairs' lengths. `counts` are the counts of each index on each side. `lopsided` are the rows of the
    pairs with the largest ratio of the longer to the shorter side, where an empty side counts as one token. Of equal
    ones the first are used.

    :param keep: number of lopsided pairs.
    """

    def __init__(self, data: DataFolder, name: str, dictionaries: list[Dictionary], *, keep: int) -> None:
        self._dictionaries = dictionaries
        self._parts: list[tuple[MmapSentences, ...]] = []
        self.counts = [np.zeros(len(dictionary), dtype=np.int64) for dictionary in dictionaries]
        self.sentences = 0
        prefix = f"{name}.{'-'.join(data.languages)}"
        pairs: Counter[tuple[int, ...]] = Counter()
        kept: list[tuple[float, int]] = []
        for folder in data.splits[name]:
            source, target = part = tuple(MmapSentences(folder / f"{prefix}.{each}") for each in data.languages)
            if len(source) != len(target):
                raise ValueError(
                    f"{source.index} has {len(source):,} sentences and {target.index.name} {len(target):,}: "
                    "expected equal numbers: binarise both again"
                )
            self._parts.append(part)
            for start in range(0, len(source), _ROWS_AT_ONCE):
                rows, lengths = range(start, min(start + _ROWS_AT_ONCE, len(source))), []
                for side, language, total in zip(part, data.languages, self.counts, strict=True):
                    found, occurrences = side.read(rows, vocabulary=len(total), dictionary=data.dictionaries[language])
                    lengths.append(found)
                    total += occurrences
                pairs.update(zip(*(side.tolist() for side in lengths), strict=True))
                factors = -np.maximum(*lengths) / np.maximum(np.minimum(*lengths), 1)
                best = np.argsort(factors, kind="stable")[:keep]
                numbers = self.sentences + start + best
                kept = sorted([*kept, *zip(factors[best].tolist(), numbers.tolist(), strict=True)])[:keep]
            self.sentences += len(source)
        self.lengths = PairLengths(*np.array([(*pair, pairs[pair]) for pair in sorted(pairs)] or np.empty((0, 3))).T)
        self.lopsided = [row for _, row in kept]

    def statistics(self, languages: tuple[str, str]) -> Statistics:
        """Statistics of both sides and of the ratio of their lengths. A split without sentences has no statistics."""
        sides = {}
        for number, language in enumerate(languages if self.sentences else ()):
            lengths = length_statistics(*self.lengths.side(number))
            unknown = int(self.counts[number][Dictionary.unk_index])
            rate = unknown / lengths["tokens"] if lengths["tokens"] else None
            sides[language] = {"lengths": lengths, "unknown": unknown, "unknown_rate": rate}
        return {"sentences": self.sentences, "sides": sides, "ratio": ratio_statistics(self.lengths) if sides else None}

    def pair(self, row: int, decoders: list[Callable[[str], str]]) -> Statistics:
        """The pair in this row as detokenised text. Rows are counted from 0, lines from 1."""
        number, parts = row + 1, iter(self._parts)
        while row >= len((part := next(parts))[0]):
            row -= len(part[0])
        sentences = [side.sentence(row).tolist() for side in part]
        source, target = (
            decode(dictionary.decode(sentence))
            for decode, dictionary, sentence in zip(decoders, self._dictionaries, sentences, strict=True)
        )
        lengths = [len(sentence) - (sentence[-1:] == [Dictionary.eos_index]) for sentence in sentences]
        return {"number": number, "source": source, "target": target, "lengths": lengths}


def inspect_data(folder: str | Path, *, lopsided: int = 3, examples: int = 3, seed: int = 1) -> Inspection:
    """Reads a folder that `rskip prepare` or fairseq-preprocess made.

    :param lopsided: number of most lopsided pairs to return.
    :param examples: number of random pairs to return.
    :param seed: random seed of the examples.
    :raises FileNotFoundError: the folder or a file in it is missing.
    :raises ValueError: the folder holds something else, or a file is damaged. The error names it and says what to do.
    """
    data = find_data(folder)
    dictionaries = [Dictionary.load(data.dictionaries[language]) for language in data.languages]
    splits = {name: Split(data, name, dictionaries, keep=lopsided) for name in data.splits}
    shown, split = next(iter(splits.items()))
    drawn = sorted(random.Random(seed).sample(range(split.sentences), min(examples, split.sentences)))
    train_counts = dict(zip(data.languages, splits["train"].counts, strict=True)) if "train" in splits else {}
    record, decoders = read_corpus_record(data.path), _decoders(data)
    statistics = {
        "data": str(data.path),
        "source_language": data.languages[0],
        "target_language": data.languages[1],
        "shards": data.shards,
        "corpus": record and {"name": record.get("corpus"), "options": record.get("options")},
        "cleaning": _cleaning(data.path / CLEANING_FILE),
        "splits": {name: each.statistics(data.languages) for name, each in splits.items()},
        "joint_dictionary": dictionaries[0].tokens == dictionaries[1].tokens,
        "vocabulary": {
            language: vocabulary_statistics(dictionary, train_counts.get(language))
            for language, dictionary in zip(data.languages, dictionaries, strict=True)
        },
        "shown_split": shown,
        "lopsided": [split.pair(row, decoders) for row in split.lopsided],
        "examples": [split.pair(row, decoders) for row in drawn],
    }
    return Inspection(data=data, statistics=statistics, pair_lengths=split.lengths, train_counts=train_counts)


def _cleaning(path: Path) -> Statistics | None:
    return CleaningReport.read(path).to_dict() if path.is_file() else None


def percentile(values: np.ndarray, counts: Integers, percent: int) -> Any:
    """The smallest of the ascending values that at least `percent` % of them do not exceed; 0 without values."""
    rank = max(1, -(-percent * int(counts.sum()) // 100))
    return values[np.searchsorted(np.cumsum(counts), rank)].item() if len(values) else 0


def _percentiles(values: np.ndarray, counts: Integers) -> Statistics:
    if not len(values):
        return {"median": None, "percentiles": {}}
    percentiles = {str(percent): percentile(values, counts, percent) for percent in PERCENTS}
    return {"median": percentile(values, counts, 50), "percentiles": percentiles}


def length_statistics(lengths: Integers, sentences: Integers) -> Statistics:
    """Statistics of ascending lengths without the end symbol, and their counts, which are the histogram."""
    tokens = int((lengths * sentences).sum())
    return {
        "tokens": tokens,
        "empty": int(sentences[lengths == 0].sum()),
        "mean": tokens / int(sentences.sum()),
        **_percentiles(lengths, sentences),
        "longest": int(lengths[-1]),
        "histogram": {str(length): count for length, count in zip(lengths.tolist(), sentences.tolist(), strict=True)},
    }


def ratio_statistics(pairs: PairLengths) -> Statistics:
    """Statistics of target length divided by source length.

    "overall" is the ratio of all tokens. The others are over pairs without an empty side, or None without such pairs.
    The standard deviation is that of these pairs, not an estimate from a sample.
    """
    source, target, counts = pairs
    tokens, whole = int((source * counts).sum()), (source > 0) & (target > 0)
    ratios, weights = target[whole] / source[whole], counts[whole]
    order = np.argsort(ratios, kind="stable")
    ratios, weights = ratios[order], weights[order]
    mean = float(np.average(ratios, weights=weights)) if len(ratios) else None
    return {
        "overall": int((target * counts).sum()) / tokens if tokens else None,
        "mean": mean,
        "deviation": None if mean is None else float(np.sqrt(np.average((ratios - mean) ** 2, weights=weights))),
        **_percentiles(ratios, weights),
        "with_empty_side": int(counts[~whole].sum()),
    }


def vocabulary_statistics(dictionary: Dictionary, counts: Integers | None) -> Statistics:
    """Statistics of a dictionary and its use in train. Those of train are None without train.

    - size: all tokens, which is the number of rows of the embedding
    - padding: tokens that only fill the dictionary up to a round size
    - used: other tokens that occur, without special ones
    - once: tokens that occur once
    - coverage: number of most frequent types that make up this percentage of the known tokens

    :param counts: counts of the indices in train.
    """
    fillers = [token.removeprefix("madeupword") for token in dictionary.tokens if token.startswith("madeupword")]
    statistics: Statistics = {"size": len(dictionary), "padding": sum(filler.isdigit() for filler in fillers)}
    if counts is None:
        return statistics | dict.fromkeys(("used", "used_rate", "once", "coverage"))
    words = len(dictionary) - SPECIAL - statistics["padding"]
    frequencies = descending_frequencies(counts)
    types = np.arange(1, len(frequencies) + 1)
    return statistics | {
        "used": len(frequencies),
        "used_rate": len(frequencies) / words if words else None,
        "once": int((frequencies == 1).sum()),
        "coverage": {str(percent): percentile(types, frequencies, percent) for percent in COVERAGES},
    }


def descending_frequencies(counts: Integers) -> Integers:
    """The counts of all types that occur, without special ones, in descending order."""
    words = counts[SPECIAL:]
    return np.sort(words[words > 0])[::-1]


def _decoders(data: DataFolder) -> list[Callable[[str], str]]:
    """Functions that detokenise each language: with the pipeline in text/, or unchanged without one."""
    if not (data.path / "text" / CONFIG_FILE).is_file():
        return [str, str]
    pipeline = TextPipeline.load(data.path / "text")
    known = {pipeline.target_language: pipeline.decode, pipeline.source_language: pipeline.reversed().decode}
    return [known.get(language, str) for language in data.languages]
