"""Describes a binarised corpus as numbers, text and a plot, for `rskip inspect`. It does not need fairseq."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent
from typing import Any

from rskip.corpora.binarised import Integers, MmapSentences
from rskip.corpora.cleaning import read_report, report_table
from rskip.corpora.prepared import PreparedPairs, find_pairs
from rskip.corpora.record import CLEANING_FILE, read_corpus_record
from rskip.extras import extra
from rskip.files.plot import plot_file
from rskip.machine.terminal import columns
from rskip.text.dictionary import Dictionary
from rskip.text.pipeline import CONFIG_FILE, TextPipeline

with extra("translation", what="a corpus of text"):
    import numpy as np
    from numpy.typing import NDArray

PERCENTS, COVERAGES = (5, 25, 75, 95, 99), (50, 90, 99, 100)
SPECIAL = 4
_ROWS_AT_ONCE = 1 << 14
# colours that colour-blind people can distinguish (Okabe and Ito)
_STYLES: tuple[dict[str, Any], ...] = ({"color": "#0072b2", "linestyle": "-"}, {"color": "#d55e00", "linestyle": "--"})
_BARS, _POINTS = 100, 2000

Statistics = dict[str, Any]


@dataclass(frozen=True)
class Inspection:
    """The result of an inspection.

    :param statistics: the output of `--json`.
    :param frequencies: descending counts of the types of each language in train; empty without train.
    """

    statistics: Statistics
    frequencies: dict[str, Integers]


class _Split:
    """The sentence pairs of a split, which are read in blocks.

    lengths: of source and target without end symbols, 8 bytes per pair. Shape: (2, pairs)
    counts: the counts of each index on each side.
    """

    def __init__(self, data: PreparedPairs, name: str, dictionaries: list[Dictionary]) -> None:
        self._dictionaries = dictionaries
        self._parts: list[list[MmapSentences]] = []
        self.counts = [np.zeros(len(dictionary), dtype=np.int64) for dictionary in dictionaries]
        lengths: list[list[NDArray[np.int32]]] = [[np.empty(0, np.int32)], [np.empty(0, np.int32)]]
        prefix = f"{name}.{'-'.join(data.languages)}"
        for folder in data.splits[name]:
            part = [MmapSentences(folder / f"{prefix}.{language}") for language in data.languages]
            source, target = part
            if len(source) != len(target):
                raise ValueError(
                    f"{source.index} has {len(source):,} sentences and {target.index.name} {len(target):,}: "
                    "expected equal numbers: binarise both again"
                )
            self._parts.append(part)
            for number, (side, language) in enumerate(zip(part, data.languages, strict=True)):
                total = self.counts[number]
                for start in range(0, len(side), _ROWS_AT_ONCE):
                    rows = range(start, min(start + _ROWS_AT_ONCE, len(side)))
                    found, counts = side.read(rows, vocabulary=len(total), dictionary=data.dictionaries[language])
                    lengths[number].append(found.astype(np.int32))
                    total += counts
        self.lengths = np.stack([np.concatenate(side) for side in lengths])

    def statistics(self, languages: tuple[str, str]) -> Statistics:
        """Statistics of both sides and of the ratio of their lengths. A split without sentences has no statistics."""
        pairs, sides = self.lengths.shape[1], {}
        for language, lengths, counts in zip(languages if pairs else (), self.lengths, self.counts, strict=False):
            of_lengths, unknown = length_statistics(lengths), int(counts[Dictionary.unk_index])
            rate = unknown / of_lengths["tokens"] if of_lengths["tokens"] else None
            sides[language] = {"lengths": of_lengths, "unknown": unknown, "unknown_rate": rate}
        return {"sentences": pairs, "sides": sides, "ratio": ratio_statistics(self.lengths) if sides else None}

    def lopsided(self, count: int) -> list[int]:
        """The rows of the pairs with the largest ratio of the longer to the shorter side, where an empty side counts as
        one token. Of equal ones the first are used."""
        ratios = self.lengths.max(0) / np.maximum(self.lengths.min(0), 1)
        rows: list[int] = np.argsort(-ratios, kind="stable")[:count].tolist()
        return rows

    def pair(self, row: int, decoders: list[Callable[[str], str]]) -> Statistics:
        """The pair in this row as detokenised text. Rows are counted from 0, lines from 1."""
        shown: Statistics = {"number": row + 1, "source": "", "target": "", "lengths": self.lengths[:, row].tolist()}
        parts = iter(self._parts)
        while row >= len((part := next(parts))[0]):
            row -= len(part[0])
        of_sides = zip(("source", "target"), part, self._dictionaries, decoders, strict=True)
        for name, side, dictionary, decode in of_sides:
            shown[name] = decode(dictionary.decode(side.sentence(row).tolist()))
        return shown


def inspect_data(folder: str | Path, *, lopsided: int = 3, examples: int = 3, seed: int = 1) -> Inspection:
    """Reads a folder that `rskip prepare` or fairseq-preprocess made.

    :param lopsided: number of most lopsided pairs to return.
    :param examples: number of random pairs to return.
    :param seed: random seed of the examples.
    :raises FileNotFoundError: the folder or a file in it is missing.
    :raises ValueError: the folder holds something else, or a file is damaged. The error names it and says what to do.
    """
    data = find_pairs(folder)
    dictionaries = [Dictionary.load(data.dictionaries[language]) for language in data.languages]
    splits = {name: _Split(data, name, dictionaries) for name in data.splits}
    shown, split = next(iter(splits.items()))
    pairs = split.lengths.shape[1]
    drawn = sorted(random.Random(seed).sample(range(pairs), min(examples, pairs)))
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
        "cleaning": read_report(cleaning) if cleaning.is_file() else None,
        "splits": {name: each.statistics(data.languages) for name, each in splits.items()},
        "joint_dictionary": dictionaries[0].tokens == dictionaries[1].tokens,
        "vocabulary": {
            language: vocabulary_statistics(dictionary, frequencies.get(language))
            for language, dictionary in zip(data.languages, dictionaries, strict=True)
        },
        "shown_split": shown,
        "lopsided": [split.pair(row, decoders) for row in split.lopsided(lopsided)],
        "examples": [split.pair(row, decoders) for row in drawn],
    }
    return Inspection(statistics, frequencies)


def _decoders(data: PreparedPairs) -> list[Callable[[str], str]]:
    """Functions that detokenise each language: with the pipeline in text/, or unchanged without one."""
    if not (data.path / "text" / CONFIG_FILE).is_file():
        return [str, str]
    pipeline = TextPipeline.load(data.path / "text")
    known = {pipeline.target_language: pipeline.decode, pipeline.source_language: pipeline.reversed().decode}
    return [known.get(language, str) for language in data.languages]


def percentile(values: NDArray[Any], counts: Integers, percent: int) -> Any:
    """The smallest of the ascending values that at least `percent` % of them do not exceed; 0 without values."""
    rank = max(1, -(-percent * int(counts.sum()) // 100))
    return values[np.searchsorted(np.cumsum(counts), rank)].item() if len(values) else 0


def _percentiles(values: NDArray[Any], counts: Integers) -> Statistics:
    if not len(values):
        return {"mean": None, "median": None, "percentiles": {}}
    return {
        "mean": float(np.average(values, weights=counts)),
        "median": percentile(values, counts, 50),
        "percentiles": {str(percent): percentile(values, counts, percent) for percent in PERCENTS},
    }


def length_statistics(lengths: NDArray[np.int32]) -> Statistics:
    """Statistics of the lengths of one side. `histogram` maps each length to its count."""
    values, counts = np.unique(lengths, return_counts=True)
    return {
        "tokens": int(lengths.sum(dtype=np.int64)),
        "empty": int((lengths == 0).sum()),
        **_percentiles(values, counts),
        "longest": values[-1].item(),
        "histogram": dict(zip(map(str, values.tolist()), counts.tolist(), strict=True)),
    }


def ratio_statistics(lengths: NDArray[np.int32]) -> Statistics:
    """Statistics of target length divided by source length.

    "overall" is the ratio of all tokens. The others are over pairs without an empty side, or None without such pairs.

    :param lengths: of source and target. Shape: (2, pairs)
    """
    source, target = lengths.sum(1, dtype=np.int64).tolist()
    full = lengths[:, (lengths > 0).all(0)]
    found = _percentiles(*np.unique(full[1] / full[0], return_counts=True))
    overall = target / source if source else None
    return {"overall": overall, **found, "with_empty_side": lengths.shape[1] - full.shape[1]}


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
        table = report_table(statistics["cleaning"]).rstrip("\n")
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
    statistics, shown = inspection.statistics, inspection.statistics["shown_split"]
    split, languages = statistics["splits"][shown], (statistics["source_language"], statistics["target_language"])
    if not split["sentences"]:
        raise ValueError(f"{statistics['data']}: {shown} has no sentences to plot")
    name = statistics["corpus"]["name"] if statistics["corpus"] else Path(statistics["data"]).resolve().name
    sides = {language: side["lengths"] for language, side in split["sides"].items()}
    end = max(1, *(side["percentiles"]["99"] for side in sides.values()))
    edges = np.arange(0, end + 2, -(-(end + 1) // _BARS)) - 0.5
    with plot_file(path, figsize=(10, 4.8), layout="constrained") as figure:
        histograms, coverage = figure.subplots(1, 2)
        figure.suptitle(f"{name} ({' → '.join(languages)}), {shown}: {split['sentences']:,} pairs")
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
