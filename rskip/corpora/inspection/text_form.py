"""An inspection as plain text for the terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from rskip.corpora.cleaning import CleaningReport
from rskip.corpora.inspection.binarised import Integers
from rskip.corpora.inspection.inspection import COVERAGES, SPECIAL, Figures, Inspection
from rskip.machine.terminal import columns

_BINS, _BAR = 16, 24
_NOTHING = "-"


def text_form(inspection: Inspection) -> str:
    """Tables of sizes, length ratios and vocabulary, a length histogram, single pairs; what cleaning dropped."""
    figures = inspection.figures
    languages, shown = inspection.data.languages, figures["shown_split"]
    parts = [
        _heading(figures),
        _sizes(figures["splits"]),
        _ratios(figures["splits"], "/".join(reversed(languages))),
        _histogram(inspection),
        _vocabulary(figures),
        _cleaning(figures["cleaning"]),
        _pairs(f"the most lopsided pairs of {shown}:", figures["lopsided"], languages),
        _pairs(f"some pairs of {shown}:", figures["examples"], languages),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _heading(figures: Figures) -> str:
    corpus = figures["corpus"] or {}
    name = f"{corpus['name']}, " if corpus else ""
    shards = f", {figures['shards']} shards" if figures["shards"] else ""
    heading = f"{figures['data']}: {name}{figures['source_language']} → {figures['target_language']}{shards}"
    if not isinstance(corpus.get("options"), dict):
        return heading
    options = [_option(key, value) for key, value in corpus["options"].items() if value is not None]
    return f"{heading}\nprepared with: {', '.join(options)}"


def _option(name: str, value: object) -> str:
    """`size 10000`, `duplicates`, `no duplicates`."""
    if isinstance(value, bool):
        return name if value else f"no {name}"
    return f"{name} {value}"


def _sizes(splits: Figures) -> str:
    rows = [["split", "", "sentences", "tokens", "mean", "median", "95 %", "99 %", "longest", "empty", "unknown"]]
    for split, figures in splits.items():
        if not figures["sentences"]:
            rows.append([split, "", "0", *[_NOTHING] * 8])
        for language, side in figures["sides"].items():
            lengths = side["lengths"]
            percentiles = [lengths["percentiles"][percent] for percent in ("95", "99")]
            counts = [lengths["median"], *percentiles, lengths["longest"], lengths["empty"]]
            row = [language, f"{figures['sentences']:,}", f"{lengths['tokens']:,}", f"{lengths['mean']:.2f}"]
            rows.append([split, *row, *(f"{count:,}" for count in counts), _percentage(side["unknown_rate"])])
            split = ""
    heading = "sizes, lengths in tokens (without the end mark), unknown tokens:\n"
    return heading + columns(rows, left=[0, 1], indent="  ")


def _ratios(splits: Figures, ratio: str) -> str:
    rows = [["split", "all tokens", "mean", "deviation", "5 %", "median", "95 %", "an empty side"]]
    for split, figures in splits.items():
        if found := figures["ratio"]:
            percentiles = found["percentiles"]
            values = [found["overall"], found["mean"], found["deviation"]]
            values += [percentiles.get("5"), found["median"], percentiles.get("95")]
            cells = [_NOTHING if value is None else f"{value:.2f}" for value in values]
            rows.append([split, *cells, f"{found['with_empty_side']:,}"])
    heading = f"target length by source length ({ratio}), of all tokens and pair by pair:\n"
    return heading + columns(rows, indent="  ")


def _histogram(inspection: Inspection) -> str:
    """Sentences of each range of lengths, both sides beside each other; the last range takes all longer ones."""
    sides = inspection.shown["sides"]
    if not sides:
        return ""
    width = _bin_width(max(side["lengths"]["percentiles"]["99"] for side in sides.values()))
    counts = [_binned(*inspection.pair_lengths.side(side), width=width) for side in (0, 1)]
    longest = max(int(side.max()) for side in counts)
    rows = [["tokens", *(cell for language in sides for cell in (language, ""))]]
    for number in range(1 + max(int(np.flatnonzero(side)[-1]) for side in counts)):
        first = number * width
        name = f"{first}–{first + width - 1}" if width > 1 else f"{first}"
        row = [f"{first} and more" if number == _BINS - 1 else name]
        for count in (int(side[number]) for side in counts):
            row += [f"{count:,}", "█" * round(_BAR * count / longest) or ("▏" if count else "")]
        rows.append(row)
    table = columns(rows, left=[0, 2, 4], indent="  ")
    return f"lengths of the sentences of {inspection.figures['shown_split']}:\n{table}"


def _bin_width(length: int) -> int:
    """The least of 1, 2, 5, 10, 20, 50, ... of which _BINS - 1 bins reach beyond a length."""
    width = 1
    while width * (_BINS - 1) <= length:
        width = width * 5 // 2 if str(width)[0] == "2" else width * 2
    return width


def _binned(lengths: Integers, sentences: Integers, *, width: int) -> Integers:
    bins = np.zeros(_BINS, dtype=np.int64)
    np.add.at(bins, np.minimum(lengths // width, _BINS - 1), sentences)
    return bins


def _vocabulary(figures: Figures) -> str:
    rows = [["", "size", "padding", "in train", "", "once", *(f"{percent} %" for percent in COVERAGES)]]
    for language, found in figures["vocabulary"].items():
        row = [language, f"{found['size']:,}", f"{found['padding']:,}"]
        if found["used"] is None:
            rows.append([*row, *[_NOTHING] * (3 + len(COVERAGES))])
            continue
        row += [f"{found['used']:,}", _percentage(found["used_rate"]), f"{found['once']:,}"]
        rows.append([*row, *(f"{types:,}" for types in found["coverage"].values())])
    kind = "one dictionary for both languages" if figures["joint_dictionary"] else "a dictionary for each language"
    return (
        f"vocabulary ({kind}; {SPECIAL} tokens of its size are special): types that occur in train, or once\n"
        "there, and how many of the most frequent make up so much of its tokens:\n" + columns(rows, indent="  ")
    )


def _cleaning(report: dict[str, Any] | None) -> str:
    if report is None:
        return ""
    return "training pairs dropped by cleaning:\n" + _indented(CleaningReport.from_dict(report).table().splitlines())


def _pairs(heading: str, pairs: list[Figures], languages: tuple[str, str]) -> str:
    width = max(map(len, languages))
    lines = []
    for pair in pairs:
        source, target = pair["lengths"]
        lines.append(f"line {pair['number']:,} ({source:,} and {target:,} tokens)")
        lines += [f"  {languages[0]:{width}}  {pair['source']}", f"  {languages[1]:{width}}  {pair['target']}"]
    return f"{heading}\n{_indented(lines)}" if lines else ""


def _percentage(rate: float | None) -> str:
    return _NOTHING if rate is None else f"{100 * rate:.2f} %"


def _indented(lines: Iterable[str]) -> str:
    return "\n".join(f"  {line}".rstrip() for line in lines)
