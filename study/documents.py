"""Makes documents from the records: study/results/README.md, docs/tables.md, docs/claims.md, and the tables in
README.md and docs/.

A table is between the lines `<!-- study: begin NAME -->` and `<!-- study: end NAME -->`. NAME is a table of `rskip
report` or of `study.costs`, or a shell pattern of runs, such as `multi30k_en_de/*`. Only study/results/README.md shows
runs with overrides.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

from rskip.experiments.comparisons import Comparisons
from rskip.experiments.overview import overview, results_table
from rskip.experiments.results import Results
from rskip.records.tables import fill_in, markdown_text, outdated_documents
from study.claims import PAGE, claims_page, judge_claims
from study.costs import Costs

OVERVIEW, TABLES = Path("study", "results", "README.md"), Path("docs", "tables.md")
_TABLES_HEADER = """\
# Tables

`make study` writes this page from the run records in study/results/ and the papers' scores in recipes/; do not edit it
by hand. [recipes.md](recipes.md#tables) explains the columns.
"""
_HEADER = "# Results\n\n`make study` writes this page from the run records in this folder; do not edit it by hand.\n"


def outdated_texts(root: Path, results: Results, costs: Costs) -> dict[Path, str]:
    """The documents that are out of date or missing, with their new text.

    :raises ValueError: a record does not match its recipe, or a marker is not valid.
    """
    comparisons = results.comparisons
    whole = {OVERVIEW: f"{_HEADER}\n{overview(results.records)}"}
    if comparisons.names:
        whole[TABLES] = _all_tables(comparisons)
    if claims := judge_claims(root, comparisons):
        whole[PAGE] = claims_page(claims)
    texts = {
        path: text
        for name, text in whole.items()
        if not (path := root / name).is_file() or path.read_text(encoding="utf-8") != text
    }

    def table(name: str) -> str:
        if name in costs.tables:
            return costs.table(name).render("markdown")
        if name in results.names:
            return results.table(name).render("markdown")
        return results_table(r for r in results.records if not r.overrides and fnmatchcase(r.address, name))

    return texts | outdated_documents(root, lambda text, source: fill_in(text, "study", table, source=source))


def _all_tables(tables: Comparisons) -> str:
    """The papers' tables, then those of recipes whose variants are in no paper."""
    parts = [_TABLES_HEADER]
    for name in tables.names:
        table = tables.table(name)
        if name in tables.of_papers or table.records:
            parts.append(f"## {markdown_text(table.title)}\n\n`rskip report {name}`\n\n{table.render('markdown')}")
    return "\n".join(parts)
