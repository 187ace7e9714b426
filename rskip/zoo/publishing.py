"""Registers models in checkpoints.json, and writes their model cards and the tables of models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta
from safetensors import safe_open

from rskip.files.checksum import sha256_file
from rskip.files.lock import one_at_a_time
from rskip.files.whole import atomic_file
from rskip.records import Record, check_run
from rskip.records.tables import fill_in, outdated_documents, summarise
from rskip.settings.check import convert
from rskip.settings.errors import SettingError
from rskip.tasks import ModelDescription, Task, task_of_record
from rskip.zoo.model_card import model_card, models_table
from rskip.zoo.registry import (
    CARD,
    FILE_NAME,
    OF_RUN,
    OF_WEIGHTS,
    WEIGHTS,
    ModelEntry,
    ModelFile,
    ModelScore,
    Url,
    read_registry,
    release_url,
    write_registry,
)

_WORD = "a word of lower-case letters, digits and _, such as fast"
Word = Annotated[str, Meta(pattern="^[a-z0-9][a-z0-9_]*$", extra={"expected": _WORD})]

LICENCE = "MIT"
FOLDER = Path("checkpoints")
MAX_LOSS = 0.05  # maximum change of the main metric by storing the weights, in sacreBLEU or % of error

_VARIANT = "a word that makes the model's name unique, at its end"
_DECIMALS = 4
_DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}


def register(entry: ModelEntry) -> None:
    """Adds or replaces a model in checkpoints.json of the current folder, and writes its card next to its weights.

    :raises ValueError: another run's model has the name. Then nothing is written.
    """
    with one_at_a_time(Path(FILE_NAME)):
        entries = _with(read_entries(), entry)
        with atomic_file(Path(str(entry.folder), CARD)) as temporary:
            temporary.write_text(model_card(entry), encoding="utf-8")
        path = Path(FILE_NAME)
        write_registry(path, entries, url=release_url(path) if path.exists() else None)


def plan_entry(
    files: Path,
    record: Record,
    records: Sequence[Record],
    *,
    score: float,
    url: str | None = None,
    variant: str | None = None,
) -> ModelEntry:
    """The entry of a run's model, with scores of the published weights, and mean and std over the run's seeds.

    It writes nothing.

    :param files: the model's folder, or the temporary folder that will become it.
    :param record: the record of the seed whose weights these are.
    :param records: the records of all seeds of the run.
    :param score: the main metric of the published weights.
    :raises FileNotFoundError: a file of the folder is missing.
    :raises ValueError: the files, scores and records do not match, or another run has the name.
    """
    check_run(records)
    task = task_of_record(record)
    check_score(score, record, task)
    model = task.work().describe(files, record)
    git = record.git or {}
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
        parameters=record.parameters,
        folder=(FOLDER / record.run).as_posix(),
        url=url,
        files=files_of(files),
        dtype=_read_dtype(files / WEIGHTS),
        figures=tuple(_figures(record, records, score, task=task, model=model)),
        recipe=record.address,
        overrides=record.overrides,
        seed=record.seed,
        checkpoint_sha256=record.checkpoint_sha256,
        commit=git.get("commit"),
        uncommitted_changes=git.get("dirty"),
        licence=LICENCE,
        data_terms=model.data_terms,
        paper=model.paper,
    )
    _with(read_entries(), entry)
    return entry


def renewed(entry: ModelEntry, records: Sequence[Record], **changes: str | None) -> ModelEntry:
    """The entry, updated to the run's current records. Its files, its weights and their score stay.

    :param records: the records of all seeds of the run.
    :param changes: a new `url` or `variant`.
    :raises ValueError: the files or the record don't match the entry.
    """
    if (found := mismatch(entry, records)) is not None:
        run = run_of(entry)
        raise ValueError(f"{found}: restore it, or publish the run again, `rskip zoo publish {run}`")
    (record,) = (record for record in records if record.seed == entry.seed)
    (score,) = (figure.value for figure in entry.figures if figure.of == OF_WEIGHTS)
    named = {"url": entry.url, "variant": variant_of(entry), **changes}
    return plan_entry(Path(str(entry.folder)), record, records, score=score, **named)


def mismatch(entry: ModelEntry, records: Sequence[Record]) -> str | None:
    """How the model's folder or its run's record differs from the entry; None if both match."""
    files = files_of(Path(str(entry.folder)))
    for name in sorted({*files, *entry.files}):
        if files.get(name) != entry.files.get(name):
            return f"{entry.folder}/{name} differs from {FILE_NAME}"
    record = next((record for record in records if record.seed == entry.seed), None)
    if record is None:
        return f"the run {run_of(entry)} has no run record of seed {entry.seed}, whose weights are in {entry.folder}"
    if entry.checkpoint_sha256 not in (None, record.checkpoint_sha256):
        return f"{record.path} is from another training run than the weights in {entry.folder}"
    return None


def find_entry(run: str) -> ModelEntry | None:
    """The model of a run in checkpoints.json of the current folder."""
    return next((each for each in read_entries().values() if each.folder == f"{FOLDER}/{run}"), None)


def run_of(entry: ModelEntry) -> str:
    """The address of the run whose weights are in the model's folder."""
    return str(entry.folder).removeprefix(f"{FOLDER}/")


def choose_name(
    run: str,
    task: Task[Any],
    *,
    overrides: Mapping[str, Any],
    config: Mapping[str, Any],
    url: str | None = None,
    variant: str | None = None,
) -> dict[str, str | None]:
    """The `url` and `variant` of a run's model: as given, otherwise as in checkpoints.json.

    :param overrides: the overrides of the run's recipe or records.
    :param config: the config of the run's recipe or records.
    :raises SettingError: `url` or `variant` is not valid, or the recipe was overridden and there is no variant.
    """
    if (before := find_entry(run)) is not None:
        url = before.url if url is None else url
        variant = variant_of(before) if variant is None else variant
    if url is not None:
        convert(url, Url, name="url")
    if variant is not None:
        convert(variant, Word, name="variant")
    if variant is None:
        for what, changes in (("recipe", overrides), ("architecture", task.work().architecture_changes(config))):
            if changes:
                listed = ", ".join(f"{key}={value}" for key, value in changes.items())
                raise SettingError("variant", f"is missing: {run} changes its {what} ({listed})", expected=_VARIANT)
    return {"url": url, "variant": variant}


def model_name(
    *,
    architecture: str,
    connection: str,
    dataset: str,
    languages: tuple[str, str] | None = None,
    variant: str | None = None,
) -> str:
    """ARCHITECTURE_CONNECTION.DATASET[.SOURCE-TARGET][.VARIANT], such as `transformer_tiny_2rskip_ln.multi30k.en-de`.

    CONNECTION is the slug of the connection's spec. VARIANT distinguishes runs whose other parts are equal.

    :param architecture: the architecture, such as transformer_tiny.
    :param connection: a spec such as 2rskip+ln.
    :param dataset: the dataset, such as multi30k or cifar10.
    :param languages: source and target language of a translation model.
    :param variant: a word of lower-case letters, digits and _.
    :raises ValueError: `connection` is not valid.
    """
    from rskip.connections import parse_connection  # imports PyTorch

    parts = [f"{architecture}_{parse_connection(connection).slug}", dataset]
    if languages is not None:
        parts.append("-".join(languages))
    if variant is not None:
        parts.append(variant)
    return ".".join(parts)


def variant_of(entry: ModelEntry) -> str | None:
    """The variant in the model's name. It is a last part without a hyphen, which languages would have."""
    further = entry.name.split(".")[2:]
    return further[-1] if further and "-" not in further[-1] else None


def files_of(folder: Path) -> dict[str, ModelFile]:
    """Size and checksum of every file that loading the folder's model needs, the weights first.

    Hidden files, which killed processes may leave, are ignored.
    """
    paths = {path.relative_to(folder).as_posix(): path for path in folder.rglob("[!.]*") if path.is_file()}
    names = sorted(paths.keys() - {CARD}, key=lambda name: (name != WEIGHTS, name))
    return {name: ModelFile(size=paths[name].stat().st_size, sha256=sha256_file(paths[name])) for name in names}


def check_score(score: float, record: Record, task: Task[Any]) -> None:
    """:raises ValueError: the published weights are worse, or better, than the run's own."""
    metric = task.columns[0].metric
    before = record.metrics[metric]
    if abs(score - before) > MAX_LOSS:
        raise ValueError(
            f"checkpoints/{record.run}/{WEIGHTS} has {metric} {score:.2f} when read back, the run had {before:.2f}: "
            f"expected a difference of at most {MAX_LOSS}"
        )


def outdated_tables(root: Path) -> dict[Path, str]:
    """The new texts of README.md and the documents in docs/ whose table of models differs from checkpoints.json.

    :raises ValueError: a marker lacks its counterpart.
    """
    table = models_table(read_entries(root).values())
    return outdated_documents(root, lambda text, source: fill_in(text, "rskip zoo", lambda _: table, source=source))


def _figures(
    published: Record, records: Sequence[Record], score: float, *, task: Task[Any], model: ModelDescription
) -> Iterator[ModelScore]:
    """The score of the published weights, then each metric's mean over the seeds that have it."""
    records = sorted(records, key=lambda record: record.seed)

    def figure(metric: str, scores: Mapping[int, float], of: Any) -> ModelScore:
        summary = summarise([*scores.values()])
        return ModelScore(
            dataset=model.measured_on,
            split=model.split,
            metric=metric,
            value=round(summary.mean, _DECIMALS),
            spread=None if summary.std is None else round(summary.std, _DECIMALS),
            seeds=tuple(scores),
            signature=next((each.signatures[metric] for each in records if metric in each.signatures), None),
            of=of,
        )

    yield figure(task.columns[0].metric, {published.seed: score}, OF_WEIGHTS)
    for metric in task.headings:
        if scores := {record.seed: record.metrics[metric] for record in records if metric in record.metrics}:
            yield figure(metric, scores, OF_RUN)


def _read_dtype(weights: Path) -> Any:
    """The number format of the file's floating-point tensors, which must all have the same."""
    with safe_open(weights, framework="np") as file:
        found = {file.get_slice(name).get_dtype() for name in file.keys()} & set(_DTYPES)  # noqa: SIM118
    assert len(found) == 1, f"{weights} holds {' and '.join(sorted(found)) or 'no floating-point tensors'}"
    return _DTYPES[found.pop()]


def read_entries(root: Path = Path()) -> dict[str, ModelEntry]:
    """The models of checkpoints.json in a folder; none without this file."""
    path = root / FILE_NAME
    return read_registry(path) if path.exists() else {}


def _with(entries: Mapping[str, ModelEntry], entry: ModelEntry) -> dict[str, ModelEntry]:
    """The entries with this one, which replaces the former entry of its folder.

    :raises ValueError: another run's model has the name.
    """
    if (other := entries.get(entry.name)) is not None and other.folder != entry.folder:
        given = "is missing" if (variant := variant_of(entry)) is None else f"is {variant!r}"
        raise SettingError("variant", f"{given}: {entry.name} is the model of {other.folder}", expected=_VARIANT)
    return {name: each for name, each in entries.items() if each.folder != entry.folder} | {entry.name: entry}
