"""The project's tables, made from its records.

results/README.md is made whole. In README.md and docs/, a table stands between the lines `<!-- rskip report:
begin PATTERN -->` and `<!-- rskip report: end PATTERN -->`, where PATTERN is a shell pattern of recipe names,
such as `multi30k_en_de_*`; runs with overrides are left to results/README.md.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from rskip.experiments.record import Record, read_records
from rskip.experiments.results_table import NO_RECORDS, results_table
from rskip.files.whole import atomic_file

_MARKER = re.compile(r"^<!-- rskip report: (begin|end) (\S+) -->$")
_HEADER = "# Results\n\nMade from the records in this folder by `rskip report`; don't edit it by hand.\n"


def make_tables(root: Path) -> dict[Path, str]:
    """Every file under `root` that holds a table, with the text that it should have.

    Raises FileNotFoundError where there is no results folder, ValueError for a bad record or marker.
    """
    if not (root / "results").is_dir():
        raise FileNotFoundError(
            f"no folder results in {root.resolve().name}: run this in the project's folder"
        )
    records = read_records(root / "results")
    texts = {root / "results" / "README.md": _overview(records)}
    for path in [root / "README.md", *sorted((root / "docs").rglob("*.md"))]:
        if path.is_file():
            text = path.read_text(encoding="utf-8")
            if "<!-- rskip report:" in text:
                texts[path] = fill_in_tables(text, records, source=str(path))
    return texts


def write_tables(root: Path) -> list[Path]:
    """Writes the tables that differ from the records; returns the files that changed."""
    changed = find_outdated(root)
    texts = make_tables(root)
    for path in changed:
        with atomic_file(path) as temporary:
            temporary.write_text(texts[path], encoding="utf-8")
    return changed


def find_outdated(root: Path) -> list[Path]:
    """The files whose tables differ from the records, or are missing."""
    return [
        path
        for path, text in make_tables(root).items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]


def fill_in_tables(text: str, records: Sequence[Record], *, source: str) -> str:
    """The text with every table between markers made anew; `source` names the file in errors."""
    lines: list[str] = []
    open_name = None
    for number, line in enumerate(text.splitlines(), start=1):
        match = _MARKER.match(line.strip())
        if match is None:
            if "<!-- rskip report:" in line:
                raise ValueError(
                    f"{source}, line {number}: expected <!-- rskip report: begin PATTERN --> or end PATTERN"
                )
            if open_name is None:
                lines.append(line)
            continue
        edge, name = match.groups()
        if (edge == "begin") != (open_name is None) or (edge == "end" and name != open_name):
            raise ValueError(f"{source}, line {number}: {line.strip()} doesn't match the marker before it")
        if edge == "end":
            shown = [r for r in records if not r.overrides and fnmatchcase(r.recipe, name)]
            lines += ["", *results_table(shown).rstrip("\n").split("\n"), ""]
        lines.append(line)
        open_name = name if edge == "begin" else None
    if open_name is not None:
        raise ValueError(f"{source}: the table {open_name} has no end marker")
    return "\n".join(lines) + "\n"


def _overview(records: Sequence[Record]) -> str:
    by_data: dict[str, list[Record]] = {}
    for record in records:
        by_data.setdefault(_data_name(record), []).append(record)
    if not by_data:
        return f"{_HEADER}\n{NO_RECORDS}"
    return _HEADER + "".join(f"\n## {name}\n\n{results_table(by_data[name])}" for name in sorted(by_data))


def _data_name(record: Record) -> str:
    """The corpus or the dataset that the run's config names."""
    return str(record.config.get("corpus") or record.config.get("train", {}).get("dataset") or record.kind)
