"""A published folder, checkpoints/<run>/, and the records of its run, as an entry of the registry.

Records come as plain mappings: `rskip.experiments`, which reads and checks them, stands above this package.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean, stdev

from rskip.checksum import sha256_file
from rskip.zoo.entry import OF_RUN, OF_WEIGHTS, WEIGHTS, Figure, ModelEntry, ModelFile
from rskip.zoo.names import model_name
from rskip.zoo.papers import paper_of
from rskip.zoo.run_kinds import RUN_KINDS, Record, RunKind, RunModel

LICENCE = "MIT"
MAX_LOSS = 0.05  # what storing the weights may cost: sacreBLEU, or % of error
NOT_OF_THE_MODEL = ("record.json", "README.md")  # files of a published folder that loading the model needs not

_DECIMALS = 4
_DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}


def entry_of_record(
    folder: Path, records: Sequence[Record], *, root: Path, url: str | None = None, variant: str | None = None
) -> ModelEntry:
    """The entry of a published run: figures of the published weights, and mean and spread over the run's seeds.

    :param folder: checkpoints/<run>, as `rskip run --publish` leaves it.
    :param records: of all seeds of the run.
    :param root: the project's folder.
    :param url: base address where the files are served too.
    :param variant: last part of the model's name; needed where the recipe was overridden.
    :raises FileNotFoundError: a file of the folder is missing.
    :raises ValueError: files, figures and records that don't belong together; one line that names them.
    """
    records = sorted(records, key=lambda record: record["seed"])
    published = _published_record(folder, records)
    run = published["run"]
    if published["kind"] not in RUN_KINDS:
        raise ValueError(f"{run} is a run of kind {published['kind']}: expected {' or '.join(RUN_KINDS)}")
    kind = RUN_KINDS[published["kind"]]
    _check_weights(published, kind.metrics[0], folder=folder)
    if published["overrides"] and variant is None:
        changes = ", ".join(f"{key}={value}" for key, value in published["overrides"].items())
        raise ValueError(f"{run} changes its recipe ({changes}): give --variant WORD, which ends the model's name")
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
        folder=folder.relative_to(root).as_posix(),
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


def _published_record(folder: Path, records: Sequence[Record]) -> Record:
    """The folder's record, which is one of `records`; these are of one run, of the same settings and scorers."""
    path = folder / "record.json"
    try:
        published = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: not a JSON file ({error}): publish the run again") from None
    if published not in records:
        raise ValueError(f"{path} is none of the records in results/{folder.name}: publish the run again")
    assert published["run"] == folder.name, path
    for record in records:
        for key in ("run", "config", "signatures"):
            if record[key] != published[key]:
                other = f"results/{folder.name}/{record['seed']}.json"
                raise ValueError(f"{other} and {path} differ in {key}: remove what is out of date")
    return published


def _check_weights(published: Record, metric: str, *, folder: Path) -> None:
    """:raises ValueError: the weights are not those that the record tells of, or are worse than the run's own."""
    record, told = folder / "record.json", published["published"]
    if not told:
        raise ValueError(f"{record} tells of no published weights: `rskip run RECIPE --publish` makes them")
    weights = folder / told["file"]
    if told["file"] != WEIGHTS:
        raise ValueError(f"{weights}: expected the weights in {WEIGHTS}")
    if weights.stat().st_size != told["bytes"] or sha256_file(weights) != told["sha256"]:
        raise ValueError(f"{weights} is not the file that {record} tells of: publish the run again")
    before, after = published["metrics"][metric], told[metric]
    if abs(after - before) > MAX_LOSS:
        raise ValueError(
            f"{weights} has {metric} {after:.2f}, the run {before:.2f}: expected at most {MAX_LOSS} between them"
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
