"""The cost of streams in rskip and elsewhere, from benchmarks/streams_side_by_side.py."""

from __future__ import annotations

from pathlib import Path

import msgspec

from rskip.records.tables import Table
from rskip.settings.text import read_text

NAME = "streams_side_by_side"
FILE = Path("study", "results", "benchmarks", f"{NAME}.jsonl")


class _Row(msgspec.Struct, frozen=True, kw_only=True):
    features: int
    name: str
    calls: int
    kept: float
    sublayer_ms: float
    stack_ms: float
    compiled_ms: float | None = None  # of the sublayer


class _Line(msgspec.Struct, frozen=True, kw_only=True):
    date: str
    rounds: int
    load: float
    libraries: dict[str, str]
    rows: list[_Row]


def side_by_side(root: Path) -> str:
    """The table of the file's last line, in Markdown."""
    line = msgspec.json.decode(read_text(root / FILE).splitlines()[-1], type=_Line)
    sizes = list(dict.fromkeys(row.features for row in line.rows))
    of = {(row.name, row.features): row for row in line.rows}
    headings = ["connection", "calls", "values kept"]
    compiled = [size for size in sizes if of[line.rows[0].name, size].compiled_ms is not None]
    for size in sizes:
        after = ["compiled ms"] if size in compiled else []
        headings += [f"{size}: {each}" for each in ("sublayer ms", *after, "4 layers ms", "4 layers ×")]
    names = list(dict.fromkeys(row.name for row in line.rows))
    rows = []
    for name in names:
        library, _, variant = name.partition(" ")
        spec, *rest = variant.split(" ")
        shown = " ".join([library, f"`{spec}`" if library == "rskip" else spec, *rest])
        row = [shown, str(of[name, sizes[0]].calls), f"{of[name, sizes[0]].kept:.1f}"]
        for size in sizes:
            own, base = of[name, size], of[names[0], size]
            after = [f"{own.compiled_ms:.1f}"] if size in compiled else []
            row += [f"{own.sublayer_ms:.1f}", *after, f"{own.stack_ms:.0f}", f"{own.stack_ms / base.stack_ms:.2f}"]
        rows.append(row)
    libraries = " and ".join(f"{name} {version}" for name, version in line.libraries.items())
    note = (
        f"Medians of {line.rounds} alternating passes with {libraries}; load of the two cores: {line.load:.0f}. "
        f"Measured {line.date[:10]}."
    )
    return Table(name=NAME, title=NAME, headings=headings, rows=rows, notes=[note]).render("markdown")
