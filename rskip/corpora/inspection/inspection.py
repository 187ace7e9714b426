"""The figures of a binarised corpus, as `rskip inspect --json` prints them."""

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
from rskip.machine.extras import extra
from rskip.text.dictionary import Dictionary
from rskip.text.pipeline import CONFIG_FILE, TextPipeline

with extra("translation", what="a corpus of text"):
    import numpy as np

PERCENTS = (5, 25, 75, 95, 99)
COVERAGES = (50, 90, 99, 100)
SPECIAL = 4
_ROWS_AT_ONCE = 1 << 14

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


class PairLengths(NamedTuple):
    """The different pairs of lengths, and how many sentence pairs have each; all figures of lengths follow from it."""

    source: Integers
    target: Integers
    counts: Integers

    def side(self, number: int) -> tuple[Integers, Integers]:
        """The lengths that occur on a side (0: source, 1: target), ascending, and how many sentences have each."""
        lengths, places = np.unique(self[number], return_inverse=True)
        return lengths, np.bincount(places, self.counts).astype(np.int64)


class Split:
    """A split's sentence pairs, part after part, read once in blocks, so that memory stays flat.

    lengths: of the pairs.
    counts: how often each index occurs on each side.
    lopsided: rows of the pairs whose longer side has the most times the tokens of the shorter, where an empty side
        counts as one token; of equal ones the first.

    :param keep: how many rows of lopsided pairs.
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
                    "expected as many: binarise both again"
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

    def figures(self, languages: tuple[str, str]) -> Figures:
        """Of both sides (none where there are no sentences), and of the ratio of their lengths."""
        sides = {}
        for number, language in enumerate(languages if self.sentences else ()):
            lengths = length_figures(*self.lengths.side(number))
            unknown = int(self.counts[number][Dictionary.unk_index])
            rate = unknown / lengths["tokens"] if lengths["tokens"] else None
            sides[language] = {"lengths": lengths, "unknown": unknown, "unknown_rate": rate}
        return {"sentences": self.sentences, "sides": sides, "ratio": ratio_figures(self.lengths) if sides else None}

    def pair(self, row: int, decoders: list[Callable[[str], str]]) -> Figures:
        """The pair of this row, counted from 0, as people read it; its line is counted from 1."""
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

    :param lopsided: how many of the most lopsided pairs to give.
    :param examples: how many random pairs to give.
    :param seed: draws them.
    :raises FileNotFoundError: the folder or a file in it is missing.
    :raises ValueError: it holds something else, or a file is damaged; says which, and what to do.
    """
    data = find_data(folder)
    dictionaries = [Dictionary.load(data.dictionaries[language]) for language in data.languages]
    splits = {name: Split(data, name, dictionaries, keep=lopsided) for name in data.splits}
    shown, split = next(iter(splits.items()))
    drawn = sorted(random.Random(seed).sample(range(split.sentences), min(examples, split.sentences)))
    train_counts = dict(zip(data.languages, splits["train"].counts, strict=True)) if "train" in splits else {}
    record, decoders = read_corpus_record(data.path), _decoders(data)
    figures = {
        "data": str(data.path),
        "source_language": data.languages[0],
        "target_language": data.languages[1],
        "shards": data.shards,
        "corpus": record and {"name": record.get("corpus"), "options": record.get("options")},
        "cleaning": _cleaning(data.path / CLEANING_FILE),
        "splits": {name: each.figures(data.languages) for name, each in splits.items()},
        "joint_dictionary": dictionaries[0].tokens == dictionaries[1].tokens,
        "vocabulary": {
            language: vocabulary_figures(dictionary, train_counts.get(language))
            for language, dictionary in zip(data.languages, dictionaries, strict=True)
        },
        "shown_split": shown,
        "lopsided": [split.pair(row, decoders) for row in split.lopsided],
        "examples": [split.pair(row, decoders) for row in drawn],
    }
    return Inspection(data=data, figures=figures, pair_lengths=split.lengths, train_counts=train_counts)


def _cleaning(path: Path) -> Figures | None:
    return CleaningReport.read(path).to_dict() if path.is_file() else None


def percentile(values: np.ndarray, counts: Integers, percent: int) -> Any:
    """The smallest of the values, which ascend, that at least `percent` % of them all do not exceed; 0 of none."""
    rank = max(1, -(-percent * int(counts.sum()) // 100))
    return values[np.searchsorted(np.cumsum(counts), rank)].item() if len(values) else 0


def _percentiles(values: np.ndarray, counts: Integers) -> Figures:
    if not len(values):
        return {"median": None, "percentiles": {}}
    percentiles = {str(percent): percentile(values, counts, percent) for percent in PERCENTS}
    return {"median": percentile(values, counts, 50), "percentiles": percentiles}


def length_figures(lengths: Integers, sentences: Integers) -> Figures:
    """Of lengths without the end mark, ascending, and how many sentences have each; the histogram is these."""
    tokens = int((lengths * sentences).sum())
    return {
        "tokens": tokens,
        "empty": int(sentences[lengths == 0].sum()),
        "mean": tokens / int(sentences.sum()),
        **_percentiles(lengths, sentences),
        "longest": int(lengths[-1]),
        "histogram": {str(length): count for length, count in zip(lengths.tolist(), sentences.tolist(), strict=True)},
    }


def ratio_figures(pairs: PairLengths) -> Figures:
    """Of target length divided by source length: overall by all tokens, the rest over pairs without an empty side.

    The standard deviation is that of the pairs themselves. What has no pair to be computed from is None.
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
    types = np.arange(1, len(frequencies) + 1)
    return figures | {
        "used": len(frequencies),
        "used_rate": len(frequencies) / words if words else None,
        "once": int((frequencies == 1).sum()),
        "coverage": {str(percent): percentile(types, frequencies, percent) for percent in COVERAGES},
    }


def descending_frequencies(counts: Integers) -> Integers:
    """How often each type occurs that does, special ones aside, the most frequent first."""
    words = counts[SPECIAL:]
    return np.sort(words[words > 0])[::-1]


def _decoders(data: DataFolder) -> list[Callable[[str], str]]:
    """How tokens of each language become text: by the pipeline in text/, or as they are where there is none."""
    if not (data.path / "text" / CONFIG_FILE).is_file():
        return [str, str]
    pipeline = TextPipeline.load(data.path / "text")
    known = {pipeline.target_language: pipeline.decode, pipeline.source_language: pipeline.reversed().decode}
    return [known.get(language, str) for language in data.languages]
