"""Describes a binarised corpus as numbers, text and a plot, for `rskip inspect`. It does not need fairseq."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent
from typing import Any

from rskip.corpora.binarised import DataFolder, Integers, MmapSentences, find_data
from rskip.corpora.cleaning import CleaningReport
from rskip.corpora.record import CLEANING_FILE, read_corpus_record
from rskip.extras import extra
from rskip.files.plot import plot_file
from rskip.machine.terminal import columns
from rskip.text.dictionary import Dictionary
from rskip.text.pipeline import CONFIG_FILE, TextPipeline

with extra("translation", what="a corpus of text"):
    import numpy as np

PERCENTS, COVERAGES = (5, 25, 75, 95, 99), (50, 90, 99, 100)
SPECIAL = 4
_ROWS_AT_ONCE = 1 << 14
# colours that colour-blind people can distinguish (Okabe and Ito)
_STYLES: tuple[dict[str, Any], ...] = ({"color": "#0072b2", "linestyle": "-"}, {"color": "#d55e00", "linestyle": "--"})
_BARS, _POINTS = 100, 2000

Statistics = dict[str, Any]
Lengths = Counter[tuple[int, int]]
"""The number of pairs by the lengths of source and target, without their end symbols."""


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """The result of an inspection.

    :param statistics: the output of `--json`.
    :param frequencies: descending counts of the types of each language in train; empty without train.
    """

    data: DataFolder
    statistics: Statistics
    frequencies: dict[str, Integers]


class _Split:
    """The sentence pairs of a split. They are read once, in blocks, so memory is constant.

    `counts` are the counts of each index on each side. `lopsided` are the rows of the `keep` pairs with the largest
    ratio of the longer to the shorter side, where an empty side counts as one token. Of equal ones the first are used.
    """

    def __init__(self, data: DataFolder, name: str, dictionaries: list[Dictionary], *, keep: int) -> None:
        self._dictionaries = dictionaries
        self._parts: list[tuple[MmapSentences, ...]] = []
        self.counts = [np.zeros(len(dictionary), dtype=np.int64) for dictionary in dictionaries]
        self.sentences, self.lengths = 0, Lengths()
        prefix, kept = f"{name}.{'-'.join(data.languages)}", list[tuple[float, int]]()
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
                self.lengths.update(zip(*(side.tolist() for side in lengths), strict=True))
                factors = -np.maximum(*lengths) / np.maximum(np.minimum(*lengths), 1)
                best = np.argsort(factors, kind="stable")[:keep]
                numbers = self.sentences + start + best
                kept = sorted([*kept, *zip(factors[best].tolist(), numbers.tolist(), strict=True)])[:keep]
            self.sentences += len(source)
        self.lopsided = [row for _, row in kept]

    def statistics(self, languages: tuple[str, str]) -> Statistics:
        """Statistics of both sides and of the ratio of their lengths. A split without sentences has no statistics."""
        sides = {}
        for number, language in enumerate(languages if self.sentences else ()):
            lengths = length_statistics(self.lengths, number)
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
    splits = {name: _Split(data, name, dictionaries, keep=lopsided) for name in data.splits}
    shown, split = next(iter(splits.items()))
    drawn = sorted(random.Random(seed).sample(range(split.sentences), min(examples, split.sentences)))
    frequencies = {}
    if "train" in splits:
        words = [counts[SPECIAL:] for counts in splits["train"].counts]
        frequencies = {each: np.sort(of[of > 0])[::-1] for each, of in zip(data.languages, words, strict=True)}
    record, cleaning, decoders = read_corpus_record(data.path), data.path / CLEANING_FILE, _decoders(data)
    statistics = {
        "data": str(data.path),
        "source_language": data.languages[0],
        "target_language": data.languages[1],
        "shards": data.shards,
        "corpus": record and {"name": record.get("corpus"), "options": record.get("options")},
        "cleaning": CleaningReport.read(cleaning).to_dict() if cleaning.is_file() else None,
        "splits": {name: each.statistics(data.languages) for name, each in splits.items()},
        "joint_dictionary": dictionaries[0].tokens == dictionaries[1].tokens,
        "vocabulary": {
            language: vocabulary_statistics(dictionary, frequencies.get(language))
            for language, dictionary in zip(data.languages, dictionaries, strict=True)
        },
        "shown_split": shown,
        "lopsided": [split.pair(row, decoders) for row in split.lopsided],
        "examples": [split.pair(row, decoders) for row in drawn],
    }
    return Inspection(data=data, statistics=statistics, frequencies=frequencies)


def _decoders(data: DataFolder) -> list[Callable[[str], str]]:
    """Functions that detokenise each language: with the pipeline in text/, or unchanged without one."""
    if not (data.path / "text" / CONFIG_FILE).is_file():
        return [str, str]
    pipeline = TextPipeline.load(data.path / "text")
    known = {pipeline.target_language: pipeline.decode, pipeline.source_language: pipeline.reversed().decode}
    return [known.get(language, str) for language in data.languages]


def percentile(values: np.ndarray, counts: np.ndarray, percent: int) -> Any:
    """The smallest of the ascending values that at least `percent` % of them do not exceed; 0 without values."""
    rank = max(1, -(-percent * int(counts.sum()) // 100))
    return values[np.searchsorted(np.cumsum(counts), rank)].item() if len(values) else 0


def _percentiles(counted: Counter[Any]) -> Statistics:
    if not counted:
        return {"mean": None, "median": None, "percentiles": {}}
    values, counts = (np.array(each) for each in zip(*sorted(counted.items()), strict=True))
    return {
        "mean": float(np.average(values, weights=counts)),
        "median": percentile(values, counts, 50),
        "percentiles": {str(percent): percentile(values, counts, percent) for percent in PERCENTS},
    }


def length_statistics(pairs: Lengths, side: int) -> Statistics:
    """Statistics of the lengths of one side. `histogram` maps each length to its count."""
    lengths: Counter[int] = Counter()
    for pair, count in pairs.items():
        lengths[pair[side]] += count
    return {
        "tokens": sum(length * count for length, count in lengths.items()),
        "empty": lengths[0],
        **_percentiles(lengths),
        "longest": max(lengths),
        "histogram": {str(length): count for length, count in sorted(lengths.items()) if count},
    }


def ratio_statistics(pairs: Lengths) -> Statistics:
    """Statistics of target length divided by source length.

    "overall" is the ratio of all tokens. The others are over pairs without an empty side, or None without such pairs.
    """
    tokens, ratios = [0, 0], Counter[float]()
    for (source, target), count in pairs.items():
        tokens[0] += source * count
        tokens[1] += target * count
        if source and target:
            ratios[target / source] += count
    overall = tokens[1] / tokens[0] if tokens[0] else None
    return {"overall": overall, **_percentiles(ratios), "with_empty_side": pairs.total() - ratios.total()}


def vocabulary_statistics(dictionary: Dictionary, frequencies: Integers | None) -> Statistics:
    """Statistics of a dictionary and its use in train. Those of train are None without train.

    "size" counts all tokens, "padding" those that only fill the dictionary up to a round size, "used" the others that
    occur, without special ones, and "once" those that occur once. "coverage" is the number of the most frequent types
    that make up this percentage of the known tokens.

    :param frequencies: descending counts of the types in train.
    """
    fillers = [token.removeprefix("madeupword") for token in dictionary.tokens if token.startswith("madeupword")]
    statistics: Statistics = {"size": len(dictionary), "padding": sum(filler.isdigit() for filler in fillers)}
    if frequencies is None:
        return statistics | dict.fromkeys(("used", "used_rate", "once", "coverage"))
    words = len(dictionary) - SPECIAL - statistics["padding"]
    types = np.arange(1, len(frequencies) + 1)
    return statistics | {
        "used": len(frequencies),
        "used_rate": len(frequencies) / words if words else None,
        "once": int((frequencies == 1).sum()),
        "coverage": {str(percent): percentile(types, frequencies, percent) for percent in COVERAGES},
    }


def text_form(statistics: Statistics) -> str:
    """Tables of sizes, length ratios and vocabulary, the report of cleaning, and single pairs, for the terminal."""
    languages, shown = (statistics["source_language"], statistics["target_language"]), statistics["shown_split"]
    sizes: list[list[object]] = [
        ["split", "", "sentences", "tokens", "mean", "median", "95 %", "99 %", "longest", "empty", "unknown"]
    ]
    ratios: list[list[object]] = [["split", "all tokens", "mean", "5 %", "median", "95 %", "an empty side"]]
    for split, found in statistics["splits"].items():
        if not found["sentences"]:
            sizes.append([split, "", 0, *[None] * 8])
            continue
        for name, (language, side) in zip((split, ""), found["sides"].items(), strict=True):
            of, rate = side["lengths"], _percentage(side["unknown_rate"])
            row = [of["tokens"], of["mean"], of["median"], of["percentiles"]["95"], of["percentiles"]["99"]]
            sizes.append([name, language, found["sentences"], *row, of["longest"], of["empty"], rate])
        ratio, few = found["ratio"], found["ratio"]["percentiles"]
        row = [ratio["overall"], ratio["mean"], few.get("5"), ratio["median"], few.get("95")]
        ratios.append([split, *row, ratio["with_empty_side"]])
    words: list[list[object]] = [
        ["", "size", "padding", "in train", "", "once", *(f"{percent} %" for percent in COVERAGES)]
    ]
    for language, found in statistics["vocabulary"].items():
        coverage = (found["coverage"] or dict.fromkeys(COVERAGES)).values()
        use = [found["used"], _percentage(found["used_rate"]), found["once"], *coverage]
        words.append([language, found["size"], found["padding"], *use])
    kind = "one dictionary for both languages" if statistics["joint_dictionary"] else "a dictionary for each language"
    parts = [
        _heading(statistics),
        _table("sizes, lengths in tokens (without the end mark), unknown tokens:", sizes, left=(0, 1)),
        _table(f"target length divided by source length ({'/'.join(reversed(languages))}):", ratios),
        _table(
            f"vocabulary ({kind}; {SPECIAL} tokens of its size are special): types that occur in train, types\n"
            "that occur there once, and the most frequent types that make up each share of its tokens:",
            words,
        ),
    ]
    if statistics["cleaning"] is not None:
        table = CleaningReport.from_dict(statistics["cleaning"]).table().rstrip("\n")
        parts.append("training pairs dropped by cleaning:\n" + indent(table, "  "))
    parts.append(_pairs(f"pairs of {shown} whose lengths differ most:", statistics["lopsided"], languages))
    parts.append(_pairs(f"random pairs of {shown}:", statistics["examples"], languages))
    return "\n\n".join(filter(None, parts)) + "\n"


def _heading(statistics: Statistics) -> str:
    corpus = statistics["corpus"] or {}
    name = f"{corpus['name']}, " if corpus else ""
    shards = f", {statistics['shards']} shards" if statistics["shards"] else ""
    heading = f"{statistics['data']}: {name}{statistics['source_language']} → {statistics['target_language']}{shards}"
    options = [f"{key} {value}" for key, value in (corpus.get("options") or {}).items() if value is not None]
    return f"{heading}\nprepared with: {', '.join(options)}" if options else heading


def _table(heading: str, rows: list[list[object]], *, left: Sequence[int] = (0,)) -> str:
    return f"{heading}\n" + columns([[*map(_cell, row)] for row in rows], left=left, indent="  ")


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2f}"
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def _percentage(rate: float | None) -> str | None:
    return None if rate is None else f"{100 * rate:.2f} %"


def _pairs(heading: str, pairs: list[Statistics], languages: tuple[str, str]) -> str:
    lines = []
    for pair in pairs:
        source, target = pair["lengths"]
        lines.append(f"  line {pair['number']:,} ({source:,} and {target:,} tokens)")
        sides = [(languages[0], pair["source"]), (languages[1], pair["target"])]
        lines.append(columns(sides, left=(0, 1), indent="    "))
    return "\n".join([heading, *lines]) if lines else ""


def draw(inspection: Inspection, path: Path) -> None:
    """Plots the lengths of both sides and the coverage of the vocabulary, as PNG or SVG by the file's name.

    The same inspection and matplotlib give the same bytes.

    :raises ValueError: as `check_plot`, or there is nothing to draw.
    """
    data, statistics = inspection.data, inspection.statistics
    shown = statistics["shown_split"]
    split = statistics["splits"][shown]
    if not split["sentences"]:
        raise ValueError(f"{data.path}: {shown} has no sentences to plot")
    name = statistics["corpus"]["name"] if statistics["corpus"] else data.path.resolve().name
    sides = {language: side["lengths"] for language, side in split["sides"].items()}
    end = max(1, *(side["percentiles"]["99"] for side in sides.values()))
    edges = np.arange(0, end + 2, -(-(end + 1) // _BARS)) - 0.5
    with plot_file(path, figsize=(10, 4.8), layout="constrained") as figure:
        histograms, coverage = figure.subplots(1, 2)
        figure.suptitle(f"{name} ({' → '.join(data.languages)}), {shown}: {split['sentences']:,} pairs")
        histograms.set(title=f"Lengths up to {end:,} (99th percentile)", xlabel="tokens per sentence")
        histograms.set(ylabel="sentences")
        coverage.set(title="Coverage of train", xlabel="most frequent types", ylabel="% of the tokens", ylim=(0, 101))
        coverage.set_xscale("log")
        for style, (language, found) in zip(_STYLES, sides.items(), strict=True):
            lengths, counts = [*map(int, found["histogram"])], [*found["histogram"].values()]
            bars, _ = np.histogram(lengths, edges, weights=counts)
            label = f"{language}: mean {found['mean']:.1f}, median {found['median']:,}, longest {found['longest']:,}"
            histograms.stairs(bars, edges, label=label, **style)
        for style, (language, frequencies) in zip(_STYLES, inspection.frequencies.items(), strict=False):
            if len(frequencies):
                share = 100 * np.cumsum(frequencies) / frequencies.sum()
                places = np.unique(np.geomspace(1, len(share), _POINTS).round().astype(np.int64))
                coverage.plot(places, share[places - 1], label=f"{language}: {len(share):,} types in train", **style)
        for axes in (histograms, coverage):
            axes.xaxis.set_major_formatter("{x:,.0f}")
            if axes.get_legend_handles_labels()[0]:
                axes.legend(loc="best", frameon=False)
