"""One page of all results, `python -m study --html FILE`: tables, figures, claims, and the source of each number.

The page opens from disk and needs no network, because it contains style, script and figures. The figures are the charts
of docs/figures/ with a target at every value (`study.grid_drawing.svg_with_values`). page.js shows the values of
targets and sorts tables.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from rskip.experiments.comparisons import Comparisons, run_command
from rskip.experiments.results import machine_label, read_results, run_label
from rskip.files.whole import atomic_file
from rskip.records import Record
from rskip.records.tables import Table
from rskip.tasks import task_of_record
from study.claims import Judged, Paper, count_verdicts, judge_claims
from study.costs import read_costs
from study.figures import FIGURES, FigureFiles, figures
from study.grid_drawing import svg_with_values

_ASSETS = Path(__file__).parent
# prevents the page from using a network
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


def write_page(root: Path, path: Path) -> None:
    """Writes the page of a project's results, atomically.

    :raises ValueError: a record, recipe, figure or claim is not valid, or matplotlib or SciPy is missing.
    """
    text = results_page(root)
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def results_page(root: Path) -> str:
    """The page's HTML."""
    costs = read_costs(root)
    results = read_results(root, further=costs)
    records, tables = results.records, results.comparisons
    compared = map(tables.table, tables.of_recipes)
    crossed = map(results.grids.table, results.grids.names)
    anchors = {record.path.relative_to(root): _record_anchor(record) for record in records}
    sections = {
        "Our comparisons": "".join(_table(table) for table in compared if table.records),
        "Grids": "".join(_table(table) for table in crossed if any(any(row[1:]) for row in table.rows)),
        "Costs": "".join(_table(costs.table(name)) for name in costs.tables),
        "Figures": "".join(_figure(made, anchors) for made in figures(root, results)),
        "Claims": "".join(_claims(paper, judged) for paper, judged in judge_claims(root, tables)),
        "The papers' tables": "".join(_table(tables.table(name)) for name in tables.of_papers),
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
        "<p><code>python -m study --html</code> wrote this page from the committed records, measurements and recipes. "
        "Point at a value in a figure to read it, or open the figure's CSV. Click a heading to sort a table, and a "
        f"seed's number to see its record.</p>\n<nav>{links}</nav>\n{body}"
        f'<div id="says" role="status"></div>\n<script>\n{script}</script></body></html>\n'
    )


def _table(table: Table) -> str:
    body = []
    for at, row in enumerate(table.rows):
        cells = [_seeds(_code(cell), table.records.get((at, place), ())) for place, cell in enumerate(row)]
        cells = [f"<b>{cell}</b>" if (at, place) in table.bold else cell for place, cell in enumerate(cells)]
        if table.descriptions:
            cells[0] += f"<br><small>{escape(table.descriptions[at])}</small>"
        body.append(cells)
    remark = f"<p>{_code(table.remark)}</p>" if table.remark else ""
    shown = f"<h3>{escape(table.title)}</h3>{remark}{_html_table(table.title, table.headings, body)}"
    if notes := [*table.notes, *table.legend]:
        shown += f"<ul>{''.join(f'<li>{_code(note)}</li>' for note in notes)}</ul>"
    if table.commands:
        commands = "\n".join(table.commands)
        shown += f"<p>Missing:</p><pre><code>{escape(commands)}</code></pre>"
    return shown


def _seeds(cell: str, records: Sequence[Record]) -> str:
    """A cell in which links to the seeds' records replace the number of seeds."""
    if not records:
        return cell
    links = ", ".join(f'<a href="#{escape(_record_anchor(record))}">{record.seed}</a>' for record in records)
    figure = re.sub(r" \((one seed|\d+)\)", "", cell)
    return f"{figure} (seed{'s' if len(records) > 1 else ''} {links})"


def _figure(made: FigureFiles, anchors: Mapping[Path, str]) -> str:
    conditions = {key: value for key, value in made.conditions.items() if key not in ("git", "machine", "packages")}
    told = [", ".join(f"{key} {value}" for key, value in conditions.items() if value is not None)]
    told += [f"commit {_commit(git)}"] if (git := made.conditions.get("git")) else []
    told += [machine_label(machine)] if (machine := made.conditions.get("machine")) else []
    told.append(f"values: `{FIGURES / made.stem.name}.csv`")
    sources = " ".join(_source(each, anchors) for each in made.sources)
    caption = "; ".join([sources, *(_code(each) for each in told if each)])
    return (
        f'<figure id="figure-{made.stem.name}"><h3>{escape(made.title)}</h3>'
        f'<div role="img" aria-label="{escape(made.title)}">{svg_with_values(made.chart)}</div>'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def _source(source: str, anchors: Mapping[Path, str]) -> str:
    """A figure's source, with a link to its record if it has one."""
    shown, path = f"<code>{escape(source)}</code>", Path(source)
    anchor = anchors.get(path.with_name(f"{path.name.partition('.')[0]}.json"), "")
    return f'<a href="#{escape(anchor)}">{shown}</a>' if anchor else shown


def _claims(paper: Paper, judged: Sequence[Judged]) -> str:
    rows = [
        [
            escape(each.claim.where),
            escape(each.claim.claim + (f" ({each.claim.paper_says})" if each.claim.paper_says else "")),
            f'<b class="{each.verdict.replace(" ", "-")}">{each.verdict}</b> {escape(each.claim.at)}',
            _code(each.found),
            f"<code>{escape(each.command)}</code>" if each.command else "",
        ]
        for each in judged
    ]
    headings = ["where", "claim", "verdict", "evidence", "command"]
    said = f"<p>{escape(paper.title)}: {count_verdicts(judged)}.</p>"
    return f"<h3>{escape(paper.name)}</h3>{said}{_html_table(paper.name, headings, rows)}"


def _records(records: Sequence[Record], tables: Comparisons) -> str:
    rows = []
    for record in records:
        metric, heading, _ = task_of_record(record).columns[0]
        figure = "diverged" if record.diverged else ""
        if metric in record.metrics:
            figure = f"{record.metrics[metric]:.2f} {escape(heading)}"
        rows.append(
            [
                f'<span id="{escape(_record_anchor(record))}">{escape(run_label(record))}</span>',
                str(record.seed),
                figure,
                f"{record.parameters:,}",
                escape(record.precision),
                f"{record.training['seconds'] / 60:.0f}",
                escape(machine_label(record.machine)),
                escape(_commits(record)),
                escape(record.date[:10]),
                f'<div class="long">{"<br>".join(map(_code, _origin(record, tables)))}</div>',
            ]
        )
    headings = ["run", "seed", "score", "parameters", "precision", "minutes", "machine", "commit", "date", "record"]
    return _html_table("Records", headings, rows)


def _origin(record: Record, tables: Comparisons) -> list[str]:
    """The record's file, and the command that makes it if a recipe has its variant."""
    origin = [f"`{record.path}`"]
    if recipe := tables.recipes.get(record.address):
        changes = [shlex.quote(f"{key}={json.dumps(value)}") for key, value in record.overrides.items()]
        command = [run_command(recipe.path, [recipe], [record.seed]), *(["--set", *changes] if changes else [])]
        origin.append(f"`{' '.join(command)}`")
    return origin


def _html_table(name: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """An HTML table.

    :param rows: cells as HTML; the first one is the row's heading.
    """
    head = "".join(f'<th scope="col"><button type="button">{escape(each)}</button></th>' for each in headings)
    body = "".join(
        f'<tr><th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in others)}</tr>'
        for first, *others in rows
    )
    table = f'<table aria-label="{escape(name)}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    return f'<div class="table">{table}</div>'


def _commits(record: Record) -> str:
    """The commits of the training's sessions, the last one first, each once."""
    earlier = (session.get("git") for session in record.training.get("earlier", ()))
    return ", ".join(dict.fromkeys(_commit(git) for git in (record.git, *earlier) if git))


def _commit(git: Mapping[str, Any]) -> str:
    return f"{git['commit'][:10]}{' with changes' if git.get('dirty') else ''}"


def _code(note: str) -> str:
    """A note as HTML, with text between backquotes as code."""
    parts = escape(note).split("`")
    return "".join(f"<code>{part}</code>" if at % 2 else part for at, part in enumerate(parts))


def _anchor(title: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in title.lower())


def _record_anchor(record: Record) -> str:
    return f"record-{record.run}-{record.seed}"
