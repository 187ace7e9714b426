"""Makes documents from the records: study/results/README.md, docs/tables.md, docs/claims.md, and the tables in
README.md and docs/.

A table is between the lines `<!-- study: begin NAME -->` and `<!-- study: end NAME -->`. NAME is a table of `rskip
report`, `study.costs` or `study.families`, or a shell pattern of runs, such as `multi30k_en_de/*`. Only
study/results/README.md shows runs with overrides.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

from rskip.experiments.comparisons import Comparisons
from rskip.experiments.recipe import all_recipes
from rskip.experiments.results import Results, overview, results_table
from rskip.records.tables import fill_in, markdown_text, outdated_documents
from study.claims import PAGE, claims_page, judge_claims
from study.costs import Costs
from study.families import TABLES as FAMILY_TABLES
from study.lm_field import PREFIX, read_fields

OVERVIEW, TABLES = Path("study", "results", "README.md"), Path("docs", "tables.md")
_TABLES_HEADER = """\
# Tables

`make study` writes this page from the run records in study/results/ and the papers' scores in recipes/; do not edit it
by hand. [report.md](report.md#read-a-table) explains the columns.

The rSkip paper's scores on CIFAR are means of five runs. The commands below have seeds 1 to 3. For as many runs as in
the paper, use `--seeds 1 2 3 4 5`, for `rskip run` and `rskip report`. [papers.md](papers.md#what-a-run-costs) has the
hours per run.
"""
_REMARKS = {
    "rskip-table-1": """\
- In the paper, the baseline is `1xskip`, and 1rSkip+LN is `1xskip_ln`.
- The paper leaves settings open. [papers.md](papers.md#what-the-papers-leave-open-on-images) lists what we chose.
- On two CPU cores without bfloat16 instructions we estimate 38 to 46 hours per run, and about 970 hours (40 days) for 8
  variants with 3 seeds.
- [cifar10_short](#cifar10_short) is a small version of this table: six connections on the same network, with 500 of the
  64,000 iterations. A run took 7 to 13 minutes on two cores with bfloat16 instructions.
""",
    "sas-table-6": """\
The paper does not say how its scaling gates enter the block. Each has two readings, which share the paper's score:
`highway_gate_full` and `sas_no_norm_term`, `highway_gate_single` and `sas_gate_single_no_norm_term`. The two variants
of the transform gate differ in its initial bias, which the paper does not give
([papers.md](papers.md#what-the-papers-leave-open-on-images)).
""",
}
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
        if name in FAMILY_TABLES:
            return FAMILY_TABLES[name]()
        if name in costs.tables:
            return costs.table(name).render("markdown")
        if name.startswith(PREFIX):
            return read_fields(root, results, all_recipes(root))[name.removeprefix(PREFIX)].markdown(root)
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
            remark = f"{_REMARKS[name]}\n" if name in _REMARKS else ""
            content = table.render("markdown")
            parts.append(f"## {markdown_text(table.title)}\n\n`rskip report {name}`\n\n{remark}{content}")
    return "\n".join(parts)
