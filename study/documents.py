"""Makes documents from the records: study/results/README.md, docs/claims.md, and the tables in README.md and docs/.

A table is between the lines `<!-- study: begin NAME -->` and `<!-- study: end NAME -->`. NAME is `papers`, a table of
`rskip report`, `study.costs` or `study.families`, a folder of `rskip compare` in study/results, or a shell pattern of
runs, such as `multi30k_en_de/*`. Only study/results/README.md shows runs with overrides.
"""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import groupby
from pathlib import Path

from rskip.comparison.plan import read_plan
from rskip.comparison.result import Comparison
from rskip.comparison.running import Runs
from rskip.experiments.recipe import Recipe
from rskip.experiments.results import Results, overview, results_table
from rskip.records.tables import Table, fill_in, markdown_table, outdated_documents
from study import streams, which
from study.baseline import COMPARISONS, PREFIX, read_comparison
from study.claims import PAGE, claims_page, judge_claims
from study.costs import Costs
from study.families import TABLES as FAMILY_TABLES

OVERVIEW, PAPERS = Path("study", "results", "README.md"), "papers"
COMPARED = "compare/"  # begins the name of a comparison in study/results
TIMES = ".times"  # after a costs table's name: its times and memory as a sentence
_HEADER = "# Results\n\n`make study` writes this page from the run records in this folder; do not edit it by hand.\n"


def outdated_texts(root: Path, results: Results, costs: Costs) -> dict[Path, str]:
    """The documents that are out of date or missing, with their new text.

    :raises ValueError: a record does not match its recipe, or a marker is not valid.
    """
    whole = {OVERVIEW: f"{_HEADER}\n{overview(results.records)}"}
    if claims := judge_claims(root, results):
        whole[PAGE] = claims_page(claims)
    texts = {
        path: text
        for name, text in whole.items()
        if not (path := root / name).is_file() or path.read_text(encoding="utf-8") != text
    }

    def table(name: str) -> str:
        if name.startswith(COMPARED):
            output = root / "study" / "results" / name
            return f"```text\n{Comparison(Runs(plan=read_plan(output), output=output))}```"
        if name in FAMILY_TABLES:
            return FAMILY_TABLES[name]()
        if name == PAPERS:
            return papers_table(results)
        if name in which.NAMES:
            return which.table(name, root, results)
        if name == streams.NAME:
            return streams.side_by_side(root)
        if name.removesuffix(TIMES) in costs.tables and name.endswith(TIMES):
            return costs.times(name.removesuffix(TIMES))
        if name in costs.tables:
            return costs.table(name).render("markdown")
        if name.startswith(PREFIX) and (short := name.removeprefix(PREFIX)) in COMPARISONS:
            return read_comparison(root, results, short).table(short).render("markdown")
        if name in results.names:
            return _shortened(costs.added(results.table(name), results.grids.get(name))).render("markdown")
        if "*" not in name:
            raise ValueError(f"{name}: study has no such table")
        return results_table(r for r in results.records if not r.overrides and fnmatchcase(r.address, name))

    return texts | outdated_documents(root, lambda text, source: fill_in(text, "study", table, source=source))


def _shortened(table: Table) -> Table:
    """A comparison without what other pages say (results.md, recipes.md, costs.md), and without what was not run."""
    notes = [note for note in table.notes if not note.startswith("Seeds needed") and "`nrefs:" not in note]
    kept = [
        at for at, name in enumerate(table.headings) if name not in ("calls", "memory") and not name.startswith("MDE, ")
    ]
    shown = [at for at, row in enumerate(table.rows) if any(row[table.words :])]  # with a run
    return replace(
        table,
        headings=[table.headings[at] for at in kept],
        rows=[[table.rows[at][column] for column in kept] for at in shown],
        bold=[(shown.index(at), kept.index(column)) for at, column in table.bold if column in kept],
        notes=notes,
        legend=(),
        commands=(),
    )


def papers_table(tables: Results) -> str:
    """Each variant that has scores in the papers: its name there, its recipe here, their scores, and ours if any."""
    recipes: dict[str, Recipe] = {}
    scores: dict[str, dict[str, list[str]]] = {}
    ours: dict[str, dict[str, str]] = {}
    for table in map(tables.comparison, tables.of_papers):
        for line in table.lines:
            address = line.recipe.address
            recipes[address] = line.recipe
            for score in line.paper:
                name, is_share, _ = score.measure.partition(", %")
                text = f"{name} {score.figure}" + " %" * bool(is_share) + f" {score.note}" * bool(score.note)
                scores.setdefault(address, {}).setdefault(text, []).append(table.title.replace("Table ", ""))
            if line.ours:
                ours.setdefault(address, {})[line.measure] = f"{line.measure} {line.ours} ({len(line.values)})"
    headings = ["in the paper", "our run", "paper's score (its table)", *(["ours"] if ours else [])]
    rows, described = [], set[str]()
    for address, recipe in recipes.items():
        description = recipe.own.description.partition(":")[0]
        short = description.partition(",")[0] if description in described else description
        described.add(description)
        in_tables = groupby(scores[address].items(), key=lambda score: score[1])
        papers = "; ".join(f"{', '.join(text for text, _ in each)} ({', '.join(titles)})" for titles, each in in_tables)
        found = "; ".join(ours.get(address, {}).values()) or "not run"
        rows.append([short, f"`{address}`", papers, found][: len(headings)])
    return markdown_table(headings, rows) + ("" if ours else "\nNone of these has a run record yet.\n")
