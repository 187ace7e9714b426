"""The findings of `rskip doctor`."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Findings:
    """Lines of the report, problems (`wrong`), and notes."""

    lines: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def show(self, what: str, value: str) -> None:
        """Adds a line to the report."""
        self.lines.append(f"{what:<20} {value}")
