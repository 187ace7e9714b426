"""Run records: the result of a run, one JSON file per seed. All tables and figures are made from them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import msgspec

from rskip.files.state import as_state, read_state
from rskip.files.whole import atomic_file
from rskip.machine.environment import Git, Machine
from rskip.settings.check import check, convert
from rskip.settings.errors import SettingError
from rskip.settings.kinds import Count, Whole

RESULTS = Path("results")  # the folder of records, unless a recipe names another one
_ADVICE = "restore the file, or remove it and run again"
_FILES = "[!.]*.json"  # excludes temporary files of killed processes

Sha256 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$", extra={"expected": "64 hexadecimal digits"})]


class _Point(TypedDict, total=False):
    """A point of a learning curve. Its other values are numbers or None."""

    epoch: Whole
    iteration: Whole
    stage: str


class _Training(TypedDict):
    """The keys that every task records about a training run. It may have others."""

    seconds: float
    pieces: Count


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A run record.

    :param recipe: name of the recipe's file, without `.yaml`.
    :param variant: the recipe's variant; None if the recipe has none.
    :param kind: the task's name, as in the recipe.
    :param config: all settings that determine the result.
    :param metrics: final scores by name; BLEU, chrF, error and accuracy are percentages. Empty if the training
        diverged.
    :param signatures: the scorer's signature for each metric that has one.
    :param curve: one mapping per epoch, or per evaluation if the task counts iterations only.
    :param training: `seconds` (over all sessions), `pieces` (the number of sessions), `precision` (one for all stages,
        or one per stage if they differ), `earlier` (the git, packages and machine of earlier sessions, as far as they
        differ from the last; missing if none does), and the task's own values.
    :param parameters: the model's number of parameters.
    :param checkpoint_sha256: checksum of the file that was scored; None if the training diverged.
    :param data: description of the data.
    :param packages: versions. `packages`, `machine` and `git` describe the last session of the training.
    :param git: None outside a checkout.
    :param date: when the record was written, ISO 8601, UTC.
    :param path: the record's file. It is not part of the file's content.
    """

    schema: Annotated[Literal[2], msgspec.Meta(extra={"expected": "2, which this version reads"})] = 2
    recipe: str
    variant: str | None = None
    kind: str
    seed: int
    config: Mapping[str, Any]
    overrides: Mapping[str, Any]
    metrics: Mapping[str, float]
    signatures: Mapping[str, str]
    curve: list[Mapping[str, Any]]
    training: Mapping[str, Any]
    parameters: int
    checkpoint_sha256: Sha256 | None
    data: Mapping[str, Any]
    packages: Mapping[str, str]
    machine: Mapping[str, Any]
    date: str
    git: Mapping[str, Any] | None = None
    path: Path = Path()

    def __post_init__(self) -> None:
        """:raises SettingError: a field is wrong."""
        check(self)
        kinds: Any = {"curve": list[_Point], "training": _Training, "machine": Machine, "git": Git | None}
        for field, kind in kinds.items():
            convert(getattr(self, field), kind, name=field)

    @property
    def diverged(self) -> bool:
        """Whether the training diverged (a loss, gradient or weight was not finite), so that it has no scores."""
        return self.checkpoint_sha256 is None

    @property
    def precision(self) -> str:
        """The precision of the training in words, per stage if the stages differ; "" if not recorded."""
        recorded = self.training.get("precision") or ""
        if isinstance(recorded, str):
            return recorded
        return ", ".join(f"{precision or 'not recorded'} ({stage})" for stage, precision in recorded.items())

    @property
    def data_checksums(self) -> object:
        """The checksums of prepared data: one of all files, or for images one per split; None for official files."""
        return self.data.get("files_sha256", self.data.get("sha256"))

    @property
    def address(self) -> str:
        """`recipe/variant`, without a hash of overrides."""
        return run_address(self.recipe, self.variant)

    @property
    def run(self) -> str:
        """The run's address, which is also the path of its folder; with a hash if settings were overridden."""
        return run_address(self.recipe, self.variant, self.overrides)

    def write(self, path: Path) -> None:
        """Writes the record as JSON, atomically."""
        content = msgspec.structs.asdict(self)
        del content["path"]
        with atomic_file(path) as temporary:
            temporary.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n")


def run_address(recipe: str, variant: str | None, overrides: Mapping[str, Any] | None = None) -> str:
    """`recipe/variant`, or `recipe` if the recipe has no variants, and a hash of the overrides if there are any.

    It is also the path of the run's folder in runs/, results/ and checkpoints/.
    """
    address = recipe if variant is None else f"{recipe}/{variant}"
    if not overrides:
        return address
    canonical = json.dumps(dict(overrides), sort_keys=True, separators=(",", ":"))
    return f"{address}-{hashlib.sha256(canonical.encode()).hexdigest()[:8]}"


def without_hash(run: str) -> str:
    """A run's address without the hash of overrides."""
    return re.sub(r"-[0-9a-f]{8}$", "", run)


def record_path(run: str, seed: int, results: Path = RESULTS) -> Path:
    """The path of a run record: `results/<recipe>/<variant>/<seed>.json`."""
    return results / run / f"{seed}.json"


def read_record(path: Path) -> Record:
    """:raises SettingError: one line that names the file and the field."""
    content = read_state(path, dict[str, Any], advice=_ADVICE)
    if "recipe" not in content:
        advice = f"move it out of the folder of records, or give another folder, such as {RESULTS}"
        raise SettingError("", "this is not a run record from `rskip run`", advice=advice, source=str(path))
    return as_state({**content, "path": path}, Record, source=str(path), advice=_ADVICE)


def read_records(folder: Path) -> list[Record]:
    """All run records in a results folder, sorted by run and seed; empty if the folder is missing."""
    paths = [path for depth in ("*", "*/*") for path in folder.glob(f"{depth}/{_FILES}")]
    return sorted(map(read_record, paths), key=lambda record: (record.run, record.seed))


def read_run_records(run: str, results: Path = RESULTS) -> list[Record]:
    """The records of one run, given its address, sorted by seed."""
    return sorted(map(read_record, (results / run).glob(_FILES)), key=lambda record: record.seed)


def check_run(records: Iterable[Record]) -> None:
    """Checks that the scores of a run's seeds can be averaged. A metric that only some of them have is no difference.

    :raises ValueError: two records were made with different settings or data, or have a metric with different
        signatures.
    """
    records = list(records)
    for one, other in combinations(records, 2):
        keys = [key for key in {**one.config, **other.config} if one.config.get(key) != other.config.get(key)]
        if keys or one.run != other.run:
            named = ", ".join(keys or ["run"])
            raise ValueError(f"{one.path} and {other.path} have different settings ({named}): remove the outdated one")
        shared = one.metrics.keys() & other.metrics.keys()
        if any(one.signatures.get(metric) != other.signatures.get(metric) for metric in shared):
            raise ValueError(f"{one.path} and {other.path} were scored differently: score one again, or remove it")
    check_data(records)


def check_data(records: Sequence[Record]) -> None:
    """Checks that all were trained on the same data.

    :raises ValueError: two were not.
    """
    for one, other in pairwise(records):
        if one.data_checksums != other.data_checksums:
            advice = "remove the outdated one, or give each data folder its own recipe"
            raise ValueError(f"{one.path} and {other.path} were trained on different data: {advice}")
