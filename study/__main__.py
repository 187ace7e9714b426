"""Write the tables and figures of README.md and docs/ from the records, in the project's folder: `make study`.

    python -m study                         updates all files that are out of date
    python -m study --check                 changes nothing; exit status 1 if a file is out of date

It writes study/results/README.md, docs/claims.md, the tables in README.md and docs/, and the figures.
For runs with new records it also updates checkpoints.json and the model cards.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rskip.cli.main import one_line
from rskip.experiments.results import read_results
from rskip.records import Record
from rskip.records.tables import write_documents
from rskip.zoo import publishing
from rskip.zoo.registry import CARD, FILE_NAME, ModelEntry
from study.costs import read_costs
from study.documents import outdated_texts
from study.figures import figures


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 1 if --check finds a file out of date, 2 for a mistake."""
    parser = argparse.ArgumentParser(
        prog="python -m study", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="change nothing, and list files that are out of date")
    try:
        return _run(Path(), check=parser.parse_args(arguments).check)
    except (OSError, ValueError) as error:
        print(f"study: error: {one_line(error)}", file=sys.stderr)
        return 2


def _run(root: Path, *, check: bool) -> int:
    costs = read_costs(root)
    results = read_results(root)
    texts, made = outdated_texts(root, results, costs), figures(root, results, costs)
    models = outdated_models(results.records)
    if check:
        of_models = [f"{entry.name} in {FILE_NAME}" for entry in models]
        outdated = [*texts, *(path for figure in made for path in figure.outdated()), *of_models]
        if outdated:
            print(f"study: out of date: {', '.join(map(str, outdated))}; run `make study`", file=sys.stderr)
        return 1 if outdated else 0
    written = [*write_documents(texts), *(path for figure in made for path in figure.write())]
    for entry in models:
        publishing.register(entry)
        written += [Path(FILE_NAME), Path(str(entry.folder), CARD)]
    written += write_documents(publishing.outdated_tables(root))
    print("\n".join(f"{path}: written" for path in dict.fromkeys(written)) or "every table and figure is up to date")
    return 0


def outdated_models(records: Sequence[Record]) -> list[ModelEntry]:
    """New entries for the models of checkpoints.json whose runs have changed records.

    Nothing is written; `register` writes an entry. Models whose weights are not in checkpoints/ are left out.

    :param records: the records of all runs.
    :raises ValueError: a model's file doesn't match its entry, or `plan_entry` refuses the new entry.
    """
    found = []
    for entry in publishing.read_entries().values():
        if entry.folder is not None and Path(entry.folder).is_dir():
            made = publishing.renewed(entry, [record for record in records if record.run == publishing.run_of(entry)])
            found += [made] if made != entry else []
    return found


if __name__ == "__main__":
    sys.exit(main())
