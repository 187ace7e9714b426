"""One page of all results, `rskip report --html FILE`: tables, figures, claims, and where each number is from.

The page opens from disk and asks no network: style, script and pictures are in it. The pictures are those of `rskip
report` with a target at every value (`rskip.analysis.figures.svg_with_values`); page.js shows what a target says, and
sorts tables.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from rskip.analysis.figures import svg_with_values
from rskip.experiments.claims import Judged, Paper, count_verdicts, judge_claims
from rskip.experiments.report import FigureFiles, figures, machine_label, read_results, run_label
from rskip.experiments.tables import Line, Table, Tables, grid, run_command
from rskip.files.whole import atomic_file
from rskip.records import Record
from rskip.tasks import task_of_record

_ASSETS = Path(__file__).parent
# what keeps the page from asking anything of a network
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


def write_page(root: Path, path: Path) -> None:
    """Writes the page of a project's results, whole or not at all.

    :raises ValueError: a bad record, recipe, figure or claim; matplotlib or SciPy is missing.
    """
    text = results_page(root)
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def results_page(root: Path) -> str:
    """The page's HTML."""
    records = read_results(root)
    tables, made = Tables(root, records), figures(root)
    claims = judge_claims(root, tables)
    shown = [tables.table(name) for name in tables.names]
    of_papers = [table for table in shown if table.name in tables.of_papers]
    own = [table for table in shown if table.name not in tables.of_papers and any(line.records for line in table.lines)]
    sections = {
        "Our comparisons": "".join(_table(table) for table in own),
        "Figures": "".join(map(_figure, made)),
        "Claims": "".join(_claims(paper, judged) for paper, judged in claims),
        "The papers' tables": "".join(_table(table) for table in of_papers),
        "Records": _records(records, tables) if records else "",
    }
    sections = {title: content or "<p>None yet.</p>" for title, content in sections.items()}
    links = " ".join(f'<a href="#{_anchor(title)}">{escape(title)}</a>' for title in sections)
    body = "".join(
        f'<section id="{_anchor(title)}"><h2>{escape(title)}</h2>{content}</section>'
        for title, content in sections.items()
    )
    style, script = ((_ASSETS / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Results</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>\n{style}</style></head><body>\n<h1>Results</h1>"
        "<p>Made by <code>rskip report --html</code> from the committed records, measurements and recipes. "
        "Point at a value in a figure to read it; click a heading to sort a table; a seed's number leads to its "
        f"record.</p>\n<nav>{links}</nav>\n{body}"
        f'<div id="says" role="status"></div>\n<script>\n{script}</script></body></html>\n'
    )


def _table(table: Table) -> str:
    headings, rows = grid(table)
    at = {heading: place for place, heading in enumerate(headings)}
    ours = next(place for heading, place in at.items() if heading.startswith("our"))
    body = []
    for row, line in zip(rows, table.lines, strict=True):
        cells = [escape(cell) for cell in row]
        cells[0] = f'<span title="{escape(line.row.own.description, quote=True)}">{cells[0]}</span>'
        cells[ours] = _seeds(cells[ours], line)
        if line.shown and "difference" in at:
            place = at["difference"]
            cells[place] = f"<b>{cells[place]}</b>"
        body.append([*cells, f"<code>{escape(line.command)}</code>" if line.command else ""])
    notes = "".join(f"<li>{_code(note)}</li>" for note in table.notes)
    return f"<h3>{escape(table.title)}</h3>{_html_table([*headings, 'missing'], body)}<ul>{notes}</ul>"


def _seeds(cell: str, line: Line) -> str:
    """The figure, with a link to the record of each seed."""
    links = [f'<a href="#{_record_anchor(record)}">{record.seed}</a>' for record in line.records]
    figure = cell.rpartition(" (")[0]
    return f"{figure} (seed{'s' if len(links) > 1 else ''} {', '.join(links)})" if links else cell


def _figure(made: FigureFiles) -> str:
    conditions = {key: value for key, value in made.conditions.items() if key not in ("git", "machine", "packages")}
    origin = [f"<code>{escape(source)}</code>" for source in made.sources]
    told = [", ".join(f"{key} {value}" for key, value in conditions.items() if value is not None)]
    told += [_commit(git)] if (git := made.conditions.get("git")) else []
    told += [machine_label(machine)] if (machine := made.conditions.get("machine")) else []
    caption = "; ".join([" ".join(origin), *(escape(each) for each in told if each)])
    return (
        f'<figure id="figure-{made.stem.name}">{svg_with_values(made.chart, title=made.title)}'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def _claims(paper: Paper, judged: Sequence[Judged]) -> str:
    rows = [
        [
            escape(each.claim.where),
            escape(each.claim.claim + (f" ({each.claim.paper_says})" if each.claim.paper_says else "")),
            f'<b class="{each.verdict}">{each.verdict}</b> {escape(each.claim.at)}',
            _code(each.found),
            f"<code>{escape(each.command)}</code>" if each.command else "",
        ]
        for each in judged
    ]
    headings = ["where", "claim", "verdict", "figure", "tested by"]
    said = f"<p>{escape(paper.title)}: {count_verdicts(judged)}.</p>"
    return f"<h3>{escape(paper.name)}</h3>{said}{_html_table(headings, rows)}"


def _records(records: Sequence[Record], tables: Tables) -> str:
    rows = []
    for record in records:
        metric, heading = task_of_record(record).columns[0]
        command = _command(record, tables)
        rows.append(
            [
                f'<span id="{_record_anchor(record)}">{escape(run_label(record))}</span>',
                str(record.seed),
                f"{record.metrics[metric]:.2f} {escape(heading)}" if metric in record.metrics else "",
                f"{record.parameters:,}",
                escape(str(record.training.get("precision") or "")),
                f"{record.training['seconds'] / 60:.0f}",
                escape(machine_label(record.machine)),
                escape(_commit(record.git)).removeprefix("commit ") if record.git else "",
                escape(record.date[:10]),
                f'<div class="long"><code>{escape(str(record.path))}</code><br><code>{escape(command)}</code></div>',
            ]
        )
    headings = ["run", "seed", "figure", "parameters", "precision", "minutes", "machine", "commit", "date", "record"]
    return _html_table(headings, rows)


def _command(record: Record, tables: Tables) -> str:
    """What makes the record; "" where no recipe has its row."""
    if (row := tables.rows.get(record.recipe)) is None:
        return ""
    changes = [f"{key}={json.dumps(value)}" for key, value in record.overrides.items()]
    return " ".join([run_command(row.path, [row], [record.seed]), *(["--set", *changes] if changes else [])])


def _html_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """:param rows: cells as HTML."""
    head = "".join(f'<th scope="col"><button type="button">{escape(each)}</button></th>' for each in headings)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="table"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _commit(git: Mapping[str, Any]) -> str:
    return f"commit {git['commit'][:10]}{' with changes' if git.get('dirty') else ''}"


def _code(note: str) -> str:
    """A note whose `code` is code."""
    parts = escape(note).split("`")
    return "".join(f"<code>{part}</code>" if at % 2 else part for at, part in enumerate(parts))


def _anchor(title: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in title.lower())


def _record_anchor(record: Record) -> str:
    return f"record-{record.run}-{record.seed}"
