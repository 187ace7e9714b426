"""An inspection as plain text for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from rskip.corpora.inspection.inspection import Inspection
from rskip.corpora.inspection.lengths import RatioFigures
from rskip.corpora.inspection.mmap_sentences import Integers
from rskip.corpora.inspection.pairs import PairText
from rskip.corpora.inspection.vocabulary import COVERAGES, SPECIAL

_BINS, _BAR = 16, 24
_NOTHING = "-"


def text_form(inspection: Inspection) -> str:
    """Tables of sizes, length ratios and vocabulary, a length histogram, single pairs; what cleaning dropped."""
    parts = [
        _heading(inspection),
        _sizes(inspection),
        _ratios(inspection),
        _histogram(inspection),
        _vocabulary(inspection),
        _cleaning(inspection),
        _pairs(f"the most lopsided pairs of {inspection.shown_split}:", inspection.lopsided, inspection),
        _pairs(f"some pairs of {inspection.shown_split}:", inspection.examples, inspection),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _heading(inspection: Inspection) -> str:
    data, corpus = inspection.data, inspection.corpus
    name = f"{corpus['name']}, " if corpus else ""
    shards = f", {data.shards} shards" if data.shards else ""
    lines = [f"{data.path}: {name}{data.source} → {data.target}{shards}"]
    if corpus and isinstance(corpus["options"], dict):
        options = [_option(key, value) for key, value in corpus["options"].items() if value is not None]
        lines.append(f"prepared with: {', '.join(options)}")
    return "\n".join(lines)


def _option(name: str, value: object) -> str:
    """`size 10000`, `duplicates`, `no duplicates`."""
    if isinstance(value, bool):
        return name if value else f"no {name}"
    return f"{name} {value}"


def _sizes(inspection: Inspection) -> str:
    header = ["split", "", "sentences", "tokens", "mean", "median", "95 %", "99 %", "longest", "empty", "unknown"]
    rows = [header]
    for split, figures in inspection.splits.items():
        if not figures.sentences:
            rows.append([split, "", "0", *[_NOTHING] * 8])
        for number, (language, side) in enumerate(figures.sides.items()):
            lengths = side.lengths
            rows.append(
                [
                    split if number == 0 else "",
                    language,
                    f"{figures.sentences:,}",
                    f"{lengths.tokens:,}",
                    f"{lengths.mean:.2f}",
                    f"{lengths.median:,}",
                    f"{lengths.percentiles['95']:,}",
                    f"{lengths.percentiles['99']:,}",
                    f"{lengths.longest:,}",
                    f"{lengths.empty:,}",
                    _percentage(side.unknown_rate),
                ]
            )
    return "sizes, lengths in tokens (without the end mark), unknown tokens:\n" + _table(rows, left=2)


def _ratios(inspection: Inspection) -> str:
    rows = [["split", "all tokens", "mean", "deviation", "5 %", "median", "95 %", "an empty side"]]
    for split, figures in inspection.splits.items():
        if figures.ratio is not None:
            rows.append([split, *_ratio(figures.ratio)])
    ratio = f"{inspection.data.target}/{inspection.data.source}"
    return f"target length by source length ({ratio}), of all tokens and pair by pair:\n" + _table(rows, left=1)


def _ratio(ratio: RatioFigures) -> list[str]:
    figures = [ratio.overall, ratio.mean, ratio.deviation]
    figures += [ratio.percentiles.get("5"), ratio.median, ratio.percentiles.get("95")]
    return [*(_NOTHING if figure is None else f"{figure:.2f}" for figure in figures), f"{ratio.with_empty_side:,}"]


def _histogram(inspection: Inspection) -> str:
    """Sentences of each range of lengths, both sides beside each other; the last range takes all longer ones."""
    figures = inspection.splits[inspection.shown_split]
    if not figures.sentences:
        return ""
    width = _bin_width(max(side.lengths.percentiles["99"] for side in figures.sides.values()))
    counts = [_binned(*inspection.pair_lengths.side(side), width=width) for side in (0, 1)]
    bins = max(len(side) for side in counts)
    counts = [np.pad(side, (0, bins - len(side))) for side in counts]
    longest = max(int(side.max()) for side in counts)
    rows = [["tokens", *(cell for language in figures.sides for cell in (language, ""))]]
    for number, sentences in enumerate(zip(*counts, strict=True)):
        first = number * width
        name = f"{first}–{first + width - 1}" if width > 1 else f"{first}"
        if number == _BINS - 1:
            name = f"{first} and more"
        row = [name]
        for each in sentences:
            row += [f"{each:,}", "█" * round(_BAR * int(each) / longest) or ("▏" if each else "")]
        rows.append(row)
    table = _table(rows, left=1, bars=(2, 4))
    return f"lengths of the sentences of {inspection.shown_split}:\n{table}"


def _bin_width(length: int) -> int:
    """The least round width of which _BINS - 1 bins reach beyond a length."""
    width = 1
    while width * (_BINS - 1) <= length:
        leading = int(str(width)[0])
        width = width * 5 // 2 if leading == 2 else width * 2
    return width


def _binned(lengths: Integers, sentences: Integers, *, width: int) -> Integers:
    bins = np.zeros(int(min(lengths[-1] // width, _BINS - 1)) + 1, dtype=np.int64)
    np.add.at(bins, np.minimum(lengths // width, _BINS - 1), sentences)
    return bins


def _vocabulary(inspection: Inspection) -> str:
    covered = [f"{percent} %" for percent in COVERAGES]
    rows = [["", "size", "padding", "in train", "", "once", *covered]]
    for language, figures in inspection.vocabulary.items():
        row = [language, f"{figures.size:,}", f"{figures.padding:,}"]
        if figures.used is None or figures.coverage is None:
            rows.append([*row, *[_NOTHING] * (3 + len(COVERAGES))])
            continue
        row += [f"{figures.used:,}", _percentage(figures.used_rate), f"{figures.once:,}"]
        rows.append([*row, *(f"{figures.coverage[str(percent)]:,}" for percent in COVERAGES)])
    kind = "one dictionary for both languages" if inspection.joint_dictionary else "a dictionary for each language"
    return (
        f"vocabulary ({kind}; {SPECIAL} tokens of its size are special): types that occur in train, or once\n"
        "there, and how many of the most frequent make up so much of its tokens:\n" + _table(rows, left=1)
    )


def _cleaning(inspection: Inspection) -> str:
    if inspection.cleaning is None:
        return ""
    from rskip.corpora.cleaning import CleaningReport
    from rskip.corpora.inspection.inspection import CLEANING_FILE

    try:
        table = CleaningReport.from_dict(inspection.cleaning).table()
    except ValueError as error:
        raise ValueError(f"{inspection.data.path / CLEANING_FILE}: {error}") from error
    return "training pairs dropped by cleaning:\n" + _indented(table.splitlines())


def _pairs(heading: str, pairs: Iterable[PairText], inspection: Inspection) -> str:
    source, target = inspection.data.languages
    width = max(len(source), len(target))
    lines = []
    for pair in pairs:
        lines.append(f"line {pair.number:,} ({pair.lengths[0]:,} and {pair.lengths[1]:,} tokens)")
        lines += [f"  {language:{width}}  {text}" for language, text in ((source, pair.source), (target, pair.target))]
    return f"{heading}\n{_indented(lines)}" if lines else ""


def _percentage(rate: float | None) -> str:
    return _NOTHING if rate is None else f"{100 * rate:.2f} %"


def _table(rows: Sequence[Sequence[str]], *, left: int, bars: Sequence[int] = ()) -> str:
    """Columns of even width, flush right but for the first `left` and those that are bars."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if place < left or place in bars else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return _indented(lines)


def _indented(lines: Iterable[str]) -> str:
    return "\n".join(f"  {line}".rstrip() for line in lines)
