"""Prints an inspection as plain text for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import indent

from rskip.corpora.cleaning import CleaningReport
from rskip.corpora.inspection.inspection import COVERAGES, SPECIAL, Inspection, Statistics
from rskip.extras import extra
from rskip.machine.terminal import columns

with extra("translation", what="a corpus of text"):
    import numpy as np

_BINS, _BAR = 16, 24


def text_form(inspection: Inspection) -> str:
    """Tables of sizes, length ratios and vocabulary, a length histogram, single pairs, and the report of cleaning."""
    statistics = inspection.statistics
    languages, shown = inspection.data.languages, statistics["shown_split"]
    parts = [
        _heading(statistics),
        _sizes(statistics["splits"]),
        _ratios(statistics["splits"], "/".join(reversed(languages))),
        _histogram(inspection),
        _vocabulary(statistics),
        _cleaning(statistics["cleaning"]),
        _pairs(f"pairs of {shown} whose lengths differ most:", statistics["lopsided"], languages),
        _pairs(f"random pairs of {shown}:", statistics["examples"], languages),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _heading(statistics: Statistics) -> str:
    corpus = statistics["corpus"] or {}
    name = f"{corpus['name']}, " if corpus else ""
    shards = f", {statistics['shards']} shards" if statistics["shards"] else ""
    heading = f"{statistics['data']}: {name}{statistics['source_language']} → {statistics['target_language']}{shards}"
    if not isinstance(corpus.get("options"), dict):
        return heading
    words = {True: "{}", False: "no {}"}  # `duplicates`, `no duplicates`, `size 10000`
    options = [
        words[value].format(key) if isinstance(value, bool) else f"{key} {value}"
        for key, value in corpus["options"].items()
        if value is not None
    ]
    return f"{heading}\nprepared with: {', '.join(options)}"


def _table(heading: str, rows: Iterable[Sequence[object]], *, left: Sequence[int] = (0,)) -> str:
    return f"{heading}\n" + columns([[*map(_cell, row)] for row in rows], left=left, indent="  ")


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2f}"
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def _percentage(rate: float | None) -> str | None:
    return None if rate is None else f"{100 * rate:.2f} %"


def _sizes(splits: Statistics) -> str:
    rows: list[list[object]] = [
        ["split", "", "sentences", "tokens", "mean", "median", "95 %", "99 %", "longest", "empty", "unknown"]
    ]
    for split, statistics in splits.items():
        if not statistics["sentences"]:
            rows.append([split, "", 0, *[None] * 8])
        for language, side in statistics["sides"].items():
            found = side["lengths"]
            row = [found[key] for key in ("tokens", "mean", "median")]
            row += [found["percentiles"]["95"], found["percentiles"]["99"], found["longest"], found["empty"]]
            rows.append([split, language, statistics["sentences"], *row, _percentage(side["unknown_rate"])])
            split = ""
    return _table("sizes, lengths in tokens (without the end mark), unknown tokens:", rows, left=(0, 1))


def _ratios(splits: Statistics, ratio: str) -> str:
    rows: list[list[object]] = [["split", "all tokens", "mean", "deviation", "5 %", "median", "95 %", "an empty side"]]
    for split, statistics in splits.items():
        if found := statistics["ratio"]:
            row = [found["overall"], found["mean"], found["deviation"], found["percentiles"].get("5")]
            rows.append([split, *row, found["median"], found["percentiles"].get("95"), found["with_empty_side"]])
    return _table(f"target length divided by source length ({ratio}), of all tokens and pair by pair:", rows)


def _histogram(inspection: Inspection) -> str:
    """The number of sentences per range of lengths, for both sides. The last range includes all longer ones."""
    sides = inspection.shown["sides"]
    if not sides:
        return ""
    longest = max(side["lengths"]["percentiles"]["99"] for side in sides.values())
    # the smallest of 1, 2, 5, 10, 20, 50, ... with which all ranges but the last one reach beyond it
    steps = (step * 10**power for power in range(19) for step in (1, 2, 5))
    width = next(step for step in steps if step * (_BINS - 1) > longest)
    counts = []
    for side in (0, 1):
        lengths, sentences = inspection.pair_lengths.side(side)
        counts.append(np.bincount(np.minimum(lengths // width, _BINS - 1), sentences, _BINS).astype(np.int64).tolist())
    most = max(map(max, counts))
    rows: list[list[object]] = [["tokens", *(cell for language in sides for cell in (language, ""))]]
    for number, both in enumerate(zip(*counts, strict=True)):
        first = number * width
        name = f"{first}–{first + width - 1}" if width > 1 else f"{first}"
        rows.append([f"{first} and more" if number == _BINS - 1 else name])
        for count in both:
            rows[-1] += [count, "█" * round(_BAR * count / most) or ("▏" if count else "")]
    while rows[-1][1] == rows[-1][3] == 0:
        rows.pop()
    return _table(f"lengths of the sentences of {inspection.statistics['shown_split']}:", rows, left=(0, 2, 4))


def _vocabulary(statistics: Statistics) -> str:
    rows: list[list[object]] = [
        ["", "size", "padding", "in train", "", "once", *(f"{percent} %" for percent in COVERAGES)]
    ]
    for language, found in statistics["vocabulary"].items():
        coverage = (found["coverage"] or dict.fromkeys(COVERAGES)).values()
        use = [found["used"], _percentage(found["used_rate"]), found["once"], *coverage]
        rows.append([language, found["size"], found["padding"], *use])
    kind = "one dictionary for both languages" if statistics["joint_dictionary"] else "a dictionary for each language"
    return _table(
        f"vocabulary ({kind}; {SPECIAL} tokens of its size are special): types that occur in train, types\n"
        "that occur there once, and the most frequent types that make up each share of its tokens:",
        rows,
    )


def _cleaning(report: Statistics | None) -> str:
    if report is None:
        return ""
    return "training pairs dropped by cleaning:\n" + indent(CleaningReport.from_dict(report).table().rstrip("\n"), "  ")


def _pairs(heading: str, pairs: list[Statistics], languages: tuple[str, str]) -> str:
    lines = []
    for pair in pairs:
        source, target = pair["lengths"]
        lines.append(f"  line {pair['number']:,} ({source:,} and {target:,} tokens)")
        sides = [(languages[0], pair["source"]), (languages[1], pair["target"])]
        lines.append(columns(sides, left=(0, 1), indent="    "))
    return "\n".join([heading, *lines]) if lines else ""
