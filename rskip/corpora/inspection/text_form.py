"""Prints an inspection as plain text for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import indent

from rskip.corpora.cleaning import CleaningReport
from rskip.corpora.inspection.inspection import COVERAGES, SPECIAL, Inspection, Statistics
from rskip.machine.terminal import columns


def text_form(inspection: Inspection) -> str:
    """Tables of sizes, length ratios and vocabulary, the report of cleaning, and single pairs."""
    statistics, languages = inspection.statistics, inspection.data.languages
    shown, cleaning = statistics["shown_split"], statistics["cleaning"]
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
        ratio = found["ratio"]
        percentiles = ratio["percentiles"]
        row = [ratio["overall"], ratio["mean"], percentiles.get("5"), ratio["median"], percentiles.get("95")]
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
        _pairs(f"pairs of {shown} whose lengths differ most:", statistics["lopsided"], languages),
        _pairs(f"random pairs of {shown}:", statistics["examples"], languages),
    ]
    if cleaning is not None:
        table = CleaningReport.from_dict(cleaning).table().rstrip("\n")
        parts.insert(-2, "training pairs dropped by cleaning:\n" + indent(table, "  "))
    return "\n\n".join(part for part in parts if part) + "\n"


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
