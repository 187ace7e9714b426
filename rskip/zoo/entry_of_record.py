"""A published folder, checkpoints/<run>/, and the records of its run, as an entry of the registry.

Records come as plain mappings: `rskip.experiments`, which reads and checks them, stands above this package.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean, stdev

from rskip.files.checksum import sha256_file
from rskip.zoo.entry import OF_RUN, OF_WEIGHTS, WEIGHTS, Figure, ModelEntry, ModelFile
from rskip.zoo.names import model_name
from rskip.zoo.papers import paper_of
from rskip.zoo.run_kinds import RUN_KINDS, Record, RunKind, RunModel

LICENCE = "MIT"
MAX_LOSS = 0.05  # what storing the weights may cost: sacreBLEU, or % of error
RECORD = "record.json"
NOT_OF_THE_MODEL = (RECORD, "README.md")  # files of a published folder that loading the model needs not

_DECIMALS = 4
_DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}


def entry_of_record(
    folder: Path, records: Sequence[Record], *, url: str | None = None, variant: str | None = None
) -> ModelEntry:
    """The entry of a published run: figures of the published weights, and mean and spread over the run's seeds.

    :param folder: checkpoints/<run> as `rskip run --publish` leaves it, or the folder that is to become it.
    :param records: of all seeds of the run.
    :param url: base address where the files are served too.
    :param variant: last part of the model's name.
    :raises FileNotFoundError: a file of the folder is missing.
    :raises ValueError: files, figures and records that don't belong together; one line that names them.
    """
    records = sorted(records, key=lambda record: record["seed"])
    if (found := mismatch(folder, records)) is not None:
        raise ValueError(f"{found}: publish the run again, `rskip zoo publish {folder.name}`")
    published = _read(folder / RECORD)
    run = published["run"]
    _check_agreement(published, records)
    if published["kind"] not in RUN_KINDS:
        raise ValueError(f"{run} is a run of kind {published['kind']}: expected {' or '.join(RUN_KINDS)}")
    kind = RUN_KINDS[published["kind"]]
    _check_loss(published, kind.metrics[0])
    model = kind.describe(folder, published)
    git = published["git"] or {}
    return ModelEntry(
        name=model_name(
            architecture=model.architecture,
            connection=model.connection,
            dataset=model.name_of_dataset,
            languages=model.languages,
            variant=variant,
        ),
        task=model.task,
        architecture=model.architecture,
        connection=model.connection,
        parameters=published["parameters"],
        folder=f"checkpoints/{run}",
        url=url,
        files=files_of(folder),
        dtype=_read_dtype(folder / WEIGHTS),
        figures=tuple(_figures(published, records, kind=kind, model=model)),
        recipe=f"recipes/{published['recipe']}.yaml",
        overrides=published["overrides"],
        records=tuple(f"results/{run}/{record['seed']}.json" for record in records),
        commit=git.get("commit"),
        uncommitted_changes=git.get("dirty"),
        licence=LICENCE,
        data_terms=model.data_terms,
        paper=paper_of(model.connection, task=model.task),
    )


def files_of(folder: Path) -> dict[str, ModelFile]:
    """Size and sum of every file that loading the folder's model needs, the weights first."""
    paths = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    names = sorted(paths.keys() - set(NOT_OF_THE_MODEL), key=lambda name: (name != WEIGHTS, name))
    return {name: ModelFile(size=paths[name].stat().st_size, sha256=sha256_file(paths[name])) for name in names}


def mismatch(folder: Path, records: Sequence[Record]) -> str | None:
    """How the folder's record is none of `records`, or its weights are not those of its record; None where both are."""
    path = folder / RECORD
    try:
        published = _read(path)
    except ValueError as error:
        return f"{path}: not a JSON file ({error})"
    if published not in records:
        return f"{path} is none of the records in results/{folder.name}"
    told = published["published"]
    if not told:
        return f"{path} tells of no published weights"
    if told["file"] != WEIGHTS:
        return f"{folder / told['file']}: expected the weights in {WEIGHTS}"
    weights = folder / WEIGHTS
    if not weights.is_file() or weights.stat().st_size != told["bytes"] or sha256_file(weights) != told["sha256"]:
        return f"{weights} is not the file that {path} tells of"
    return None


def _read(path: Path) -> Record:
    content: Record = json.loads(path.read_text(encoding="utf-8"))
    return content


def _check_agreement(published: Record, records: Sequence[Record]) -> None:
    """:raises ValueError: a record is of another run, or of other settings or scorers, than the published one."""
    for record in records:
        for key in ("run", "config", "signatures"):
            if record[key] != published[key]:
                one, other = (f"results/{published['run']}/{each['seed']}.json" for each in (record, published))
                raise ValueError(f"{one} and {other} differ in {key}: remove what is out of date")


def _check_loss(published: Record, metric: str) -> None:
    """:raises ValueError: the published weights are worse, or better, than the run's own."""
    before, after = published["metrics"][metric], published["published"][metric]
    if abs(after - before) > MAX_LOSS:
        raise ValueError(
            f"checkpoints/{published['run']}/{WEIGHTS} has {metric} {after:.2f}, the run {before:.2f}: "
            f"expected at most {MAX_LOSS} between them"
        )


def _figures(published: Record, records: Sequence[Record], *, kind: RunKind, model: RunModel) -> Iterator[Figure]:
    """The figure of the published weights, then each metric's mean over the records."""
    seeds = tuple(record["seed"] for record in records)

    def figure(metric: str, values: list[float], seeds: tuple[int, ...], of: str) -> Figure:
        return Figure(
            dataset=model.dataset,
            split=model.split,
            metric=metric,
            value=round(fmean(values), _DECIMALS),
            spread=round(stdev(values), _DECIMALS) if len(values) > 1 else None,
            seeds=seeds,
            signature=published["signatures"].get(metric),
            of=of,
        )

    first = kind.metrics[0]
    yield figure(first, [published["published"][first]], (published["seed"],), OF_WEIGHTS)
    for metric in kind.metrics:
        values = [record["metrics"][metric] for record in records if metric in record["metrics"]]
        if len(values) == len(records):
            yield figure(metric, values, seeds, OF_RUN)


def _read_dtype(weights: Path) -> str:
    """The number format of the file's floating-point tensors, which is one."""
    from safetensors import safe_open

    with safe_open(weights, framework="np") as file:
        found = {file.get_slice(name).get_dtype() for name in file.keys()} & set(_DTYPES)  # noqa: SIM118
    if len(found) != 1:
        raise ValueError(f"{weights} holds {' and '.join(sorted(found)) or 'no floating-point tensors'}: expected one")
    return _DTYPES[found.pop()]
