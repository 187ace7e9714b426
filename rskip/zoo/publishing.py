"""Published weights, checkpoints/<run>/, as a model of the registry: its entry, its card, the tables of models."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from rskip.files.checksum import sha256_file
from rskip.files.lock import one_at_a_time
from rskip.files.whole import atomic_file
from rskip.records import Record, read_record
from rskip.records.tables import fill_in, outdated_documents, summarise
from rskip.settings.check import convert
from rskip.settings.errors import SettingError
from rskip.tasks import ModelDescription, Task, task_of_record
from rskip.zoo.model_card import model_card, models_table
from rskip.zoo.registry import (
    FILE_NAME,
    OF_RUN,
    OF_WEIGHTS,
    WEIGHTS,
    Figure,
    ModelEntry,
    ModelFile,
    Url,
    read_registry,
    write_registry,
)

LICENCE = "MIT"
MAX_BYTES, MAX_BYTES_IN_ALL = 20_000_000, 100_000_000
MAX_LOSS = 0.05  # what storing the weights may cost: sacreBLEU, or % of error
RECORD, CARD = "record.json", "README.md"  # not needed to load the model

_VARIANT = "a word that ends the model's name and makes it another"
_DECIMALS = 4
_DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}


def register(run: str, records: Sequence[Record], *, url: str | None = None, variant: str | None = None) -> ModelEntry:
    """Makes or replaces the model of a run in checkpoints.json, and writes its card beside its weights.

    :param run: name of its folder under checkpoints/ and results/ of the current folder, which is the project's.
    :param records: of all its seeds.
    :param url: base address where the files are served too; by default the one that the model had.
    :param variant: last part of the model's name; by default the one that it had.
    :raises FileNotFoundError: the run has no published weights.
    :raises ValueError: what `plan_entry` refuses; nothing is written then.
    """
    folder = Path("checkpoints", run)
    if not (folder / RECORD).is_file():
        raise FileNotFoundError(f"no {folder / RECORD}: publish the run first, `rskip run RECIPE --publish`")
    with one_at_a_time(Path(FILE_NAME)):
        entry = plan_entry(folder, run, records, url=url, variant=variant)
        with atomic_file(folder / CARD) as temporary:
            temporary.write_text(model_card(entry), encoding="utf-8")
        write_registry(Path(FILE_NAME), _with(_read_entries(), entry))
    return entry


def plan_entry(
    folder: Path, run: str, records: Sequence[Record], *, url: str | None = None, variant: str | None = None
) -> ModelEntry:
    """The entry that `register` makes: figures of the published weights, and mean and spread over the run's seeds.

    Nothing is written.

    :param folder: of the weights: checkpoints/<run>, or the folder that is to become it.
    :raises FileNotFoundError: a file of the folder is missing.
    :raises ValueError: files, figures and records that don't belong together, a name that another run has, or too many
        bytes; one line that names them.
    """
    url, variant = choose_name(run, records, url=url, variant=variant)
    if (found := mismatch(folder, records)) is not None:
        raise ValueError(f"{found}: publish the run again, `rskip zoo publish {run}`")
    published = read_record(folder / RECORD)
    _check_agreement(published, records)
    task = task_of_record(published)
    check_figure(published, task)
    model = task.describe(folder, published)
    git = published.git or {}
    entry = ModelEntry(
        name=model_name(
            architecture=model.architecture,
            connection=model.connection,
            dataset=model.dataset,
            languages=model.languages,
            variant=variant,
        ),
        task=task.name,
        architecture=model.architecture,
        connection=model.connection,
        parameters=published.parameters,
        folder=f"checkpoints/{run}",
        url=url,
        files=files_of(folder),
        dtype=_read_dtype(folder / WEIGHTS),
        figures=tuple(_figures(published, records, task=task, model=model)),
        recipe=published.address,
        overrides=published.overrides,
        records=tuple(str(record.path) for record in sorted(records, key=lambda record: record.seed)),
        commit=git.get("commit"),
        uncommitted_changes=git.get("dirty"),
        licence=LICENCE,
        data_terms=model.data_terms,
        paper=model.paper,
    )
    entries = _read_entries()
    if (other := entries.get(entry.name)) is not None and other.folder != entry.folder:
        given = "is missing" if variant is None else f"is {variant!r}"
        raise SettingError("variant", f"{given}: {entry.name} is the model of {other.folder}", expected=_VARIANT)
    check_sizes(_with(entries, entry))
    return entry


def outdated_models(records: Sequence[Record]) -> dict[str, ModelEntry]:
    """The models of checkpoints.json whose runs have other records by now, by run: each entry as it should be.

    Nothing is written; `register` makes it so. Models whose weights are not in checkpoints/ stay as they are.

    :param records: of all runs.
    :raises ValueError: a file of a model that is not as its entry has it, and what `plan_entry` refuses.
    """
    found = {}
    for entry in _read_entries().values():
        folder, run = Path(str(entry.folder)), str(entry.folder).removeprefix("checkpoints/")
        if entry.folder is None or not (folder / RECORD).is_file():
            continue
        if (changed := changed_file(run)) is not None:
            raise ValueError(f"{changed}: restore it, or publish the run again, `rskip zoo publish {run}`")
        made = plan_entry(folder, run, [record for record in records if record.run == run])
        if made != entry:
            found[run] = made
    return found


def choose_name(
    run: str, records: Sequence[Record], *, url: str | None = None, variant: str | None = None
) -> tuple[str | None, str | None]:
    """The address and the variant of a run's model: those given, else those that it has in checkpoints.json.

    :raises SettingError: no address, no word, or no variant where the recipe was overridden.
    """
    if (before := _entry_of(run)) is not None:
        url = before.url if url is None else url
        variant = variant_of(before) if variant is None else variant
    if url is not None:
        convert(url, Url, name="url")
    check_variant(variant)
    if records and variant is None:
        record = records[0]
        for what, changes in (
            ("recipe", record.overrides),
            ("architecture", task_of_record(record).architecture_changes(record.config)),
        ):
            if changes:
                listed = ", ".join(f"{key}={value}" for key, value in changes.items())
                raise SettingError("variant", f"is missing: {run} changes its {what} ({listed})", expected=_VARIANT)
    return url, variant


def files_of(folder: Path) -> dict[str, ModelFile]:
    """Size and sum of every file that loading the folder's model needs, the weights first.

    Hidden files are none of it: a process that was killed while it wrote leaves such.
    """
    paths = {path.relative_to(folder).as_posix(): path for path in folder.rglob("[!.]*") if path.is_file()}
    names = sorted(paths.keys() - {RECORD, CARD}, key=lambda name: (name != WEIGHTS, name))
    return {name: ModelFile(size=paths[name].stat().st_size, sha256=sha256_file(paths[name])) for name in names}


def mismatch(folder: Path, records: Sequence[Record]) -> str | None:
    """How the folder's record is none of `records`, or its weights are not those of its record; None where both are."""
    path = folder / RECORD
    try:
        record = read_record(path)
    except SettingError as error:
        return str(error)
    if record not in [replace(each, path=path) for each in records]:
        return f"{path} is none of the records of {record.run}"
    published = record.published
    if not published:
        return f"{path} records no published weights"
    weights = folder / WEIGHTS
    if published["file"] != WEIGHTS:
        return f"{folder / published['file']}: expected the weights in {WEIGHTS}"
    if (
        not weights.is_file()
        or weights.stat().st_size != published["bytes"]
        or sha256_file(weights) != published["sha256"]
    ):
        return f"{weights} is not the file that {path} records"
    return None


def changed_file(run: str) -> str | None:
    """Which file of a published model is not as checkpoints.json has it, where its weights are; None where all are."""
    if (before := _entry_of(run)) is None:
        return None
    files = files_of(Path("checkpoints", run))
    if files.get(WEIGHTS) != before.files.get(WEIGHTS):
        return None  # published since: with other files, it may be
    changed = [name for name in sorted({*files, *before.files}) if files.get(name) != before.files.get(name)]
    return f"checkpoints/{run}/{changed[0]} is not as {FILE_NAME} has it" if changed else None


def check_figure(record: Record, task: Task[Any]) -> None:
    """:raises ValueError: the published weights are worse, or better, than the run's own."""
    metric = task.columns[0].metric
    before, after = record.metrics.get(metric), (record.published or {}).get(metric)
    if before is None or after is None:
        expected = f"what {task.name} is scored by"
        raise SettingError(metric, "is not among its figures", expected=expected, source=str(record.path))
    if abs(after - before) > MAX_LOSS:
        raise ValueError(
            f"checkpoints/{record.run}/{WEIGHTS} has {metric} {after:.2f} when it is read back, the run {before:.2f}: "
            f"expected at most {MAX_LOSS} between them"
        )


def check_size(weights: Path, dtype: str) -> None:
    """:raises ValueError: the file has more bytes than are published."""
    if (size := weights.stat().st_size) > MAX_BYTES:
        raise ValueError(
            f"the model takes {size / 1e6:.1f} MB in {dtype}: "
            f"models of up to {MAX_BYTES / 1e6:.0f} MB are published in checkpoints/"
        )


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
    table = models_table(_read_entries(root).values())
    return outdated_documents(root, lambda text, source: fill_in(text, "rskip zoo", lambda _: table, source=source))


def _check_agreement(published: Record, records: Sequence[Record]) -> None:
    """:raises ValueError: a record is of another run, or of other settings or scorers, than the published one."""
    for record in records:
        for key in ("run", "config", *(() if record.diverged else ("signatures",))):
            if getattr(record, key) != getattr(published, key):
                raise ValueError(f"{record.path} and {published.path} differ in {key}: remove what is out of date")


def _figures(
    published: Record, records: Sequence[Record], *, task: Task[Any], model: ModelDescription
) -> Iterator[Figure]:
    """The figure of the published weights, then each metric's mean over the seeds that didn't diverge."""
    records = sorted((record for record in records if not record.diverged), key=lambda record: record.seed)

    def figure(metric: str, values: list[float], seeds: list[int], of: Any) -> Figure:
        summary = summarise(values)
        return Figure(
            dataset=model.measured_on,
            split=model.split,
            metric=metric,
            value=round(summary.mean, _DECIMALS),
            spread=None if summary.spread is None else round(summary.spread, _DECIMALS),
            seeds=tuple(seeds),
            signature=published.signatures.get(metric),
            of=of,
        )

    main = task.columns[0].metric
    yield figure(main, [(published.published or {})[main]], [published.seed], OF_WEIGHTS)
    for metric, _ in (*task.columns, *task.more_figures):
        values = [record.metrics[metric] for record in records if metric in record.metrics]
        if len(values) == len(records):
            yield figure(metric, values, [record.seed for record in records], OF_RUN)


def _read_dtype(weights: Path) -> Any:
    """The number format of the file's floating-point tensors, which is one."""
    from safetensors import safe_open

    with safe_open(weights, framework="np") as file:
        found = {file.get_slice(name).get_dtype() for name in file.keys()} & set(_DTYPES)  # noqa: SIM118
    if len(found) != 1:
        raise ValueError(f"{weights} holds {' and '.join(sorted(found)) or 'no floating-point tensors'}: expected one")
    return _DTYPES[found.pop()]


def _entry_of(run: str) -> ModelEntry | None:
    return next((each for each in _read_entries().values() if each.folder == f"checkpoints/{run}"), None)


def _read_entries(root: Path = Path()) -> dict[str, ModelEntry]:
    path = root / FILE_NAME
    return read_registry(path) if path.exists() else {}


def _with(entries: Mapping[str, ModelEntry], entry: ModelEntry) -> dict[str, ModelEntry]:
    """The entries with this one in the place of what its folder had before."""
    return {name: each for name, each in entries.items() if each.folder != entry.folder} | {entry.name: entry}


def model_name(
    *,
    architecture: str,
    connection: str,
    dataset: str,
    languages: tuple[str, str] | None = None,
    variant: str | None = None,
) -> str:
    """ARCHITECTURE_CONNECTION.DATASET[.SOURCE-TARGET][.VARIANT], such as `transformer_tiny_2rskip_ln.multi30k.en-de`.

    CONNECTION is the slug of the connection's spec; VARIANT tells runs apart whose other parts are equal.

    :param architecture: such as transformer_tiny.
    :param connection: a spec such as 2rskip+ln.
    :param dataset: such as multi30k or cifar10.
    :param languages: what a translation model translates from and to.
    :param variant: a word of lower-case letters, digits and _.
    :raises ValueError: no connection, or no such word.
    """
    from rskip.connections import parse_connection  # imports PyTorch

    check_variant(variant)
    parts = [f"{architecture}_{parse_connection(connection).slug}", dataset]
    if languages is not None:
        parts.append("-".join(languages))
    if variant is not None:
        parts.append(variant)
    return ".".join(parts)


def check_variant(variant: str | None) -> None:
    """:raises SettingError: neither such a word nor None."""
    if variant is not None and not re.fullmatch(r"[a-z0-9][a-z0-9_]*", variant):
        expected = "a word of lower-case letters, digits and _, such as fast"
        raise SettingError.of_value("variant", variant, expected)


def variant_of(entry: ModelEntry) -> str | None:
    """The last part of the model's name where that is a variant: one word, where languages have a hyphen."""
    further = entry.name.split(".")[2:]
    return further[-1] if further and "-" not in further[-1] else None
