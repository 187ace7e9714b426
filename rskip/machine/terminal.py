"""Formats durations and columns for a terminal or a log."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def duration(seconds: float) -> str:
    """Formats seconds as hours and minutes, minutes and seconds, or seconds."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes = int(seconds // 60)
    return f"{minutes} min {int(seconds % 60)} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def columns(rows: Sequence[Sequence[str]], *, left: Collection[int] = (0,), indent: str = "") -> str:
    """Formats rows as aligned columns, without a final line end. Columns are flush right, except those in `left`."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(
            cell.ljust(width) if place in left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )
    return "\n".join(f"{indent}{line}".rstrip() for line in lines)
