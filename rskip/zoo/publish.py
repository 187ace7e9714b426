"""A run that `rskip run --publish` left in checkpoints/ becomes a model of the registry."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from rskip.atomic_file import atomic_file
from rskip.zoo.entry import ModelEntry
from rskip.zoo.entry_of_record import entry_of_record
from rskip.zoo.model_card import fill_in_models_table, model_card
from rskip.zoo.registry import FILE_NAME, read_registry, write_registry
from rskip.zoo.run_kinds import Record

MAX_BYTES, MAX_BYTES_IN_ALL = 20_000_000, 100_000_000
CARD = "README.md"


def publish(
    run: str, records: Sequence[Record], *, root: Path, url: str | None = None, variant: str | None = None
) -> ModelEntry:
    """Makes or replaces the model of a run in checkpoints.json, and writes its card beside its weights.

    :param run: name of its folder under checkpoints/ and results/.
    :param records: of all its seeds (see `entry_of_record`).
    :param root: the project's folder.
    :param url: base address where the files are served too; by default the one that the model had.
    :raises FileNotFoundError: the run has no published weights.
    :raises ValueError: what `entry_of_record` refuses, a name that another run has, or too many bytes; nothing is
        written then.
    """
    folder = root / "checkpoints" / run
    if not (folder / "record.json").is_file():
        raise FileNotFoundError(f"no {folder / 'record.json'}: publish the run first, `rskip run RECIPE --publish`")
    registry = root / FILE_NAME
    entries = read_registry(registry) if registry.exists() else {}
    entry = entry_of_record(folder, records, root=root, url=url, variant=variant)
    before = entries.get(entry.name)
    if before is not None and before.folder != entry.folder:
        raise ValueError(
            f"{entry.name} is the model of {before.folder}: give --variant WORD to publish {run} by another name"
        )
    if before is not None and url is None:
        entry = dataclasses.replace(entry, url=before.url)
    entries = {name: each for name, each in entries.items() if each.folder != entry.folder} | {entry.name: entry}
    check_sizes(entries)
    with atomic_file(folder / CARD) as temporary:
        temporary.write_text(model_card(entry), encoding="utf-8")
    write_registry(registry, entries)
    return entry


def check_sizes(entries: Mapping[str, ModelEntry]) -> None:
    """:raises ValueError: a model, or all that ship in the repository together, take more bytes than they may."""
    shipped = [entry for entry in entries.values() if entry.folder is not None]
    for entry in shipped:
        if entry.size > MAX_BYTES:
            raise ValueError(f"{entry.name} takes {entry.size / 1e6:.1f} MB: expected at most {MAX_BYTES / 1e6:.0f} MB")
    if (total := sum(entry.size for entry in shipped)) > MAX_BYTES_IN_ALL:
        raise ValueError(
            f"the models in checkpoints/ take {total / 1e6:.1f} MB together: "
            f"expected at most {MAX_BYTES_IN_ALL / 1e6:.0f} MB"
        )


def outdated_tables(root: Path) -> dict[Path, str]:
    """README.md and the documents in docs/ whose table of models differs from checkpoints.json, as they should be.

    :raises ValueError: a marker without its other.
    """
    models = read_registry(root / FILE_NAME).values()
    texts = {}
    for path in (root / "README.md", *sorted((root / "docs").rglob("*.md"))):
        if path.is_file():
            text = path.read_text(encoding="utf-8")
            if (filled := fill_in_models_table(text, models, source=str(path))) != text:
                texts[path] = filled
    return texts


def write_tables(root: Path) -> list[Path]:
    """Writes the tables of models that differ from checkpoints.json; returns the files that changed."""
    texts = outdated_tables(root)
    for path, text in texts.items():
        with atomic_file(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
    return list(texts)
