"""A run that `rskip run --publish` left in checkpoints/ becomes a model of the registry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rskip.files.lock import one_at_a_time
from rskip.files.whole import atomic_file
from rskip.zoo.entry import WEIGHTS, ModelEntry, check_url
from rskip.zoo.entry_of_record import RECORD, entry_of_record, files_of
from rskip.zoo.model_card import fill_in_models_table, model_card
from rskip.zoo.names import check_variant, variant_of
from rskip.zoo.registry import FILE_NAME, read_registry, write_registry
from rskip.zoo.run_kinds import Record

MAX_BYTES, MAX_BYTES_IN_ALL = 20_000_000, 100_000_000
CARD = "README.md"
_SIZES = [
    f"{stack}-{size}"
    for stack in ("encoder", "decoder")
    for size in ("embed-dim", "ffn-embed-dim", "layers", "attention-heads")
]  # what an architecture's name stands for, as recipes call it


def publish(
    run: str, records: Sequence[Record], *, root: Path, url: str | None = None, variant: str | None = None
) -> ModelEntry:
    """Makes or replaces the model of a run in checkpoints.json, and writes its card beside its weights.

    :param run: name of its folder under checkpoints/ and results/.
    :param records: of all its seeds (see `entry_of_record`).
    :param root: the project's folder.
    :param url: base address where the files are served too; by default the one that the model had.
    :param variant: last part of the model's name; by default the one that it had.
    :raises FileNotFoundError: the run has no published weights.
    :raises ValueError: what `plan_entry` refuses; nothing is written then.
    """
    folder = root / "checkpoints" / run
    if not (folder / RECORD).is_file():
        raise FileNotFoundError(f"no {folder / RECORD}: publish the run first, `rskip run RECIPE --publish`")
    with one_at_a_time(root / FILE_NAME):
        entry = plan_entry(folder, run, records, root=root, url=url, variant=variant)
        with atomic_file(folder / CARD) as temporary:
            temporary.write_text(model_card(entry), encoding="utf-8")
        write_registry(root / FILE_NAME, _with(_read_entries(root), entry))
    return entry


def plan_entry(
    folder: Path,
    run: str,
    records: Sequence[Record],
    *,
    root: Path,
    url: str | None = None,
    variant: str | None = None,
) -> ModelEntry:
    """The entry that `publish` makes. Nothing is written.

    :param folder: of the weights: checkpoints/<run>, or the folder that is to become it.
    :raises ValueError: what `choose_name` and `entry_of_record` refuse, a name that another run has, or too many bytes.
    """
    url, variant = choose_name(run, records, root=root, url=url, variant=variant)
    entries = _read_entries(root)
    entry = entry_of_record(folder, records, url=url, variant=variant)
    other = entries.get(entry.name)
    if other is not None and other.folder != entry.folder:
        raise ValueError(
            f"{entry.name} is the model of {other.folder}: give --variant WORD to publish {run} by another name"
        )
    check_sizes(_with(entries, entry))
    return entry


def choose_name(
    run: str, records: Sequence[Record], *, root: Path, url: str | None = None, variant: str | None = None
) -> tuple[str | None, str | None]:
    """The address and the variant of a run's model: those given, else those that it has in checkpoints.json.

    :raises ValueError: no address, no word, or no variant where the recipe was overridden.
    """
    if (before := _entry_of(run, root)) is not None:
        url = before.url if url is None else url
        variant = variant_of(before) if variant is None else variant
    check_url(url)
    check_variant(variant)
    if records and variant is None:
        train = records[0]["config"]["train"]
        for what, changes in (
            ("recipe", records[0]["overrides"]),
            ("architecture", {key: train[key] for key in _SIZES if key in train}),
        ):
            if changes:
                told = ", ".join(f"{key}={value}" for key, value in changes.items())
                raise ValueError(f"{run} changes its {what} ({told}): give --variant WORD, which ends the model's name")
    return url, variant


def changed_file(run: str, *, root: Path) -> str | None:
    """Which file of a published model is not as checkpoints.json has it, where its weights are; None where all are."""
    if (before := _entry_of(run, root)) is None:
        return None
    files = files_of(root / "checkpoints" / run)
    if files.get(WEIGHTS) != before.files.get(WEIGHTS):
        return None  # published since: with other files, it may be
    changed = [name for name in sorted({*files, *before.files}) if files.get(name) != before.files.get(name)]
    return f"checkpoints/{run}/{changed[0]} is not as {FILE_NAME} has it" if changed else None


def _entry_of(run: str, root: Path) -> ModelEntry | None:
    return next((each for each in _read_entries(root).values() if each.folder == f"checkpoints/{run}"), None)


def _read_entries(root: Path) -> dict[str, ModelEntry]:
    path = root / FILE_NAME
    return read_registry(path) if path.exists() else {}


def _with(entries: Mapping[str, ModelEntry], entry: ModelEntry) -> dict[str, ModelEntry]:
    """The entries with this one in the place of what its folder had before."""
    return {name: each for name, each in entries.items() if each.folder != entry.folder} | {entry.name: entry}


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
    models = _read_entries(root).values()
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
