"""The figures of a binarised corpus, as `rskip inspect --json` prints them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rskip.corpora.cleaning import CleaningReport
from rskip.corpora.inspection.binarised import DataFolder, Integers, MmapSentences, find_data
from rskip.corpora.record import CLEANING_FILE, read_record
from rskip.settings.text import read_json
from rskip.text.dictionary import Dictionary
from rskip.text.pipeline import CONFIG_FILE, TextPipeline

PERCENTS = (5, 25, 75, 95, 99)
COVERAGES = (50, 90, 99, 100)
SPECIAL = 4
_ROWS_AT_ONCE = 1 << 16
_SHIFT = 32

Part = tuple[MmapSentences, MmapSentences]
Figures = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """What was found.

    :param figures: what `--json` prints.
    :param pair_lengths: of the split that is shown: train, or else the first.
    :param train_counts: how often each index of each language's dictionary occurs in train; empty without train.
    """

    data: DataFolder
    figures: Figures
    pair_lengths: PairLengths
    train_counts: dict[str, Integers]

    @property
    def shown(self) -> Figures:
        """The figures of the split that is shown."""
        return self.figures["splits"][self.figures["shown_split"]]


def inspect_data(folder: str | Path, *, lopsided: int = 3, examples: int = 3, seed: int = 1) -> Inspection:
    """Reads a folder that `rskip prepare` or fairseq-preprocess made, in blocks, so that memory stays flat.

    :param lopsided: how many of the most lopsided pairs to give.
    :param examples: how many random pairs to give.
    :param seed: draws them.
    :raises FileNotFoundError: the folder or a file in it is missing.
    :raises ValueError: it holds something else, or a file is damaged; says which, and what to do.
    """
    data = find_data(folder)
    dictionaries = [Dictionary.load(data.dictionaries[language]) for language in data.languages]
    parts = {split: [_open_part(data, split, part) for part in places] for split, places in data.splits.items()}
    shown = next(iter(parts))
    kept = LopsidedPairs(lopsided)
    read = {
        split: _read_split(sides, data, dictionaries, kept if split == shown else LopsidedPairs(0))
        for split, sides in parts.items()
    }
    lengths = read[shown][0]
    train_counts = dict(zip(data.languages, read["train"][1], strict=True)) if "train" in read else {}
    pairs = int(lengths.counts.sum())
    drawn = sorted(random.Random(seed).sample(range(pairs), min(examples, pairs)))
    record, cleaning = read_record(data.path), data.path / CLEANING_FILE
    decoders = _decoders(data)
    figures = {
        "data": str(data.path),
        "source_language": data.source,
        "target_language": data.target,
        "shards": data.shards,
        "corpus": record and {"name": record.get("corpus"), "options": record.get("options")},
        "cleaning": _report(cleaning).to_dict() if cleaning.is_file() else None,
        "splits": {split: split_figures(data.languages, *found) for split, found in read.items()},
        "joint_dictionary": dictionaries[0].tokens == dictionaries[1].tokens,
        "vocabulary": {
            language: vocabulary_figures(dictionary, train_counts.get(language))
            for language, dictionary in zip(data.languages, dictionaries, strict=True)
        },
        "shown_split": shown,
        "lopsided": [_pair(row, parts[shown], dictionaries, decoders) for row in kept.rows],
        "examples": [_pair(row, parts[shown], dictionaries, decoders) for row in drawn],
    }
    return Inspection(data=data, figures=figures, pair_lengths=lengths, train_counts=train_counts)


def _open_part(data: DataFolder, split: str, part: Path) -> Part:
    source, target = (
        MmapSentences(part / f"{split}.{data.source}-{data.target}.{language}") for language in data.languages
    )
    if len(source) != len(target):
        raise ValueError(
            f"{source.index} has {len(source):,} sentences and {target.index.name} {len(target):,}: "
            "expected as many: binarise both again"
        )
    return source, target


def _read_split(
    parts: list[Part], data: DataFolder, dictionaries: list[Dictionary], lopsided: LopsidedPairs
) -> tuple[PairLengths, list[Integers]]:
    """Lengths of a split's pairs, and how often each index occurs on each side."""
    pairs, first = PairLengths(), 0
    counts = [np.zeros(len(dictionary), dtype=np.int64) for dictionary in dictionaries]
    for part in parts:
        for start in range(0, len(part[0]), _ROWS_AT_ONCE):
            block = range(start, min(start + _ROWS_AT_ONCE, len(part[0])))
            source, target = (side.lengths(block) for side in part)
            pairs.add(source, target)
            lopsided.add(first + start, source, target)
            for side, language, total in zip(part, data.languages, counts, strict=True):
                total += side.counts(block, vocabulary=len(total), dictionary=data.dictionaries[language])
        first += len(part[0])
    return pairs, counts


def _report(path: Path) -> CleaningReport:
    try:
        return CleaningReport.from_dict(read_json(path))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


class PairLengths:
    """How often each pair of lengths occurs (`source`, `target`, `counts`), from which all figures of lengths follow.

    Its memory grows with the number of different pairs of lengths, not with the number of sentences.
    """

    def __init__(self) -> None:
        self._keys = self.counts = np.empty(0, dtype=np.int64)

    def add(self, source: Integers, target: Integers) -> None:
        """Counts the pairs of these lengths."""
        keys = np.append(self._keys, (source << _SHIFT) | target)
        self._keys, self.counts = _summed(keys, np.append(self.counts, np.ones_like(source)))

    @property
    def source(self) -> Integers:
        return self._keys >> _SHIFT

    @property
    def target(self) -> Integers:
        return self._keys & ((1 << _SHIFT) - 1)

    def side(self, number: int) -> tuple[Integers, Integers]:
        """The lengths that occur on a side (0: source, 1: target), ascending, and how many sentences have each."""
        return _summed((self.source, self.target)[number], self.counts)


def _summed(keys: Integers, counts: Integers) -> tuple[Integers, Integers]:
    """The different keys, ascending, and the sum of the counts of each."""
    different, places = np.unique(keys, return_inverse=True)
    sums = np.zeros(len(different), dtype=np.int64)
    np.add.at(sums, places, counts)
    return different, sums


def percentile(values: np.ndarray, counts: Integers, percent: int) -> Any:
    """The smallest of the values, which ascend, that at least `percent` % of all occurrences do not exceed."""
    rank = max(1, -(-percent * int(counts.sum()) // 100))
    return values[np.searchsorted(np.cumsum(counts), rank)].item()


def split_figures(languages: tuple[str, str], pairs: PairLengths, counts: list[Integers]) -> Figures:
    """Of both sides (none where there are no sentences), and of the ratio of their lengths.

    :param counts: how often each index occurs on each side.
    """
    sides = {}
    for number, language in enumerate(languages if len(pairs.counts) else ()):
        lengths = length_figures(*pairs.side(number))
        unknown = int(counts[number][Dictionary.unk_index])
        rate = unknown / lengths["tokens"] if lengths["tokens"] else None
        sides[language] = {"lengths": lengths, "unknown": unknown, "unknown_rate": rate}
    return {"sentences": int(pairs.counts.sum()), "sides": sides, "ratio": ratio_figures(pairs) if sides else None}


def length_figures(lengths: Integers, sentences: Integers) -> Figures:
    """Of lengths without the end mark, ascending, and how many sentences have each; the histogram is these."""
    tokens = int((lengths * sentences).sum())
    return {
        "tokens": tokens,
        "empty": int(sentences[lengths == 0].sum()),
        "mean": tokens / int(sentences.sum()),
        "median": percentile(lengths, sentences, 50),
        "percentiles": {str(percent): percentile(lengths, sentences, percent) for percent in PERCENTS},
        "longest": int(lengths[-1]),
        "histogram": {str(length): count for length, count in zip(lengths.tolist(), sentences.tolist(), strict=True)},
    }


def ratio_figures(pairs: PairLengths) -> Figures:
    """Of target length divided by source length: overall by all tokens, the rest over pairs without an empty side.

    The standard deviation is that of the pairs themselves. What has no pair to be computed from is None.
    """
    source, target, counts = pairs.source, pairs.target, pairs.counts
    tokens = int((source * counts).sum())
    whole = (source > 0) & (target > 0)
    ratios, weights = target[whole] / source[whole], counts[whole]
    order = np.argsort(ratios, kind="stable")
    ratios, weights = ratios[order], weights[order]
    overall = int((target * counts).sum()) / tokens if tokens else None
    with_empty_side = int(counts[~whole].sum())
    if not len(ratios):
        none = dict.fromkeys(("mean", "deviation", "median"))
        return {"overall": overall, **none, "percentiles": {}, "with_empty_side": with_empty_side}
    mean = float((ratios * weights).sum() / weights.sum())
    return {
        "overall": overall,
        "mean": mean,
        "deviation": float(np.sqrt(((ratios - mean) ** 2 * weights).sum() / weights.sum())),
        "median": percentile(ratios, weights, 50),
        "percentiles": {str(percent): percentile(ratios, weights, percent) for percent in PERCENTS},
        "with_empty_side": with_empty_side,
    }


def vocabulary_figures(dictionary: Dictionary, counts: Integers | None) -> Figures:
    """Of a dictionary, and of the use that train makes of it: None where there is no train.

    size: all tokens, as many as the embedding has rows; padding: those that only fill it up to a round size. used: the
    others, special ones aside, that occur, and once: those that do a single time. coverage: how many types, the most
    frequent first, make up so many per cent of the known tokens.

    :param counts: how often each index occurs in train.
    """
    fillers = [token.removeprefix("madeupword") for token in dictionary.tokens if token.startswith("madeupword")]
    figures: Figures = {"size": len(dictionary), "padding": sum(filler.isdigit() for filler in fillers)}
    if counts is None:
        return figures | dict.fromkeys(("used", "used_rate", "once", "coverage"))
    words = len(dictionary) - SPECIAL - figures["padding"]
    frequencies = descending_frequencies(counts)
    return figures | {
        "used": len(frequencies),
        "used_rate": len(frequencies) / words if words else None,
        "once": int((frequencies == 1).sum()),
        "coverage": {str(percent): types_that_cover(frequencies, percent) for percent in COVERAGES},
    }


def descending_frequencies(counts: Integers) -> Integers:
    """How often each type occurs that does, special ones aside, the most frequent first."""
    words = counts[SPECIAL:]
    return np.sort(words[words > 0])[::-1]


def types_that_cover(frequencies: Integers, percent: int) -> int:
    """How many of these types, the most frequent first, make up `percent` % of their occurrences; 0 of none."""
    needed = -(-percent * int(frequencies.sum()) // 100)
    return int(np.searchsorted(np.cumsum(frequencies), needed)) + 1 if len(frequencies) else 0


class LopsidedPairs:
    """The rows of the pairs whose longer side has the most times the tokens of the shorter; of equal ones the first.

    An empty side counts as one token.

    :param keep: how many.
    """

    def __init__(self, keep: int) -> None:
        self._keep, self._factors, self._rows = keep, np.empty(0), np.empty(0, dtype=np.int64)

    def add(self, first: int, source: Integers, target: Integers) -> None:
        """Looks at the pairs of these lengths, of which the first is row `first`."""
        factors = np.append(self._factors, np.maximum(source, target) / np.maximum(np.minimum(source, target), 1))
        rows = np.append(self._rows, np.arange(first, first + len(source)))
        best = np.argsort(-factors, kind="stable")[: self._keep]
        self._factors, self._rows = factors[best], rows[best]

    @property
    def rows(self) -> list[int]:
        return self._rows.tolist()


def _pair(
    row: int, parts: list[Part], dictionaries: list[Dictionary], decoders: list[Callable[[str], str]]
) -> Figures:
    """The pair of this row, counted from 0 over all parts, as people read it; its line is counted from 1."""
    within = row
    for part in parts:
        if within < len(part[0]):
            break
        within -= len(part[0])
    source, target = (
        decode(dictionary.decode(side.sentence(within).tolist()))
        for decode, dictionary, side in zip(decoders, dictionaries, part, strict=True)
    )
    lengths = [int(side.lengths(range(within, within + 1))[0]) for side in part]
    return {"number": row + 1, "source": source, "target": target, "lengths": lengths}


def _decoders(data: DataFolder) -> list[Callable[[str], str]]:
    """How tokens of each language become text: by the pipeline in text/, or as they are where there is none."""
    if not (data.path / "text" / CONFIG_FILE).is_file():
        return [str, str]
    pipeline = TextPipeline.load(data.path / "text")
    known = {pipeline.target_language: pipeline.decode, pipeline.source_language: pipeline.reversed().decode}
    return [known.get(language, str) for language in data.languages]
