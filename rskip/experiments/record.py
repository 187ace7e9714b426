"""Records: what a run left behind, one JSON file a seed. Tables and figures are made from these alone."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rskip.experiments.keys import refuse_unknown_keys
from rskip.files.whole import atomic_file

SCHEMA = 1


@dataclass(frozen=True, kw_only=True)
class Record:
    """One run's record.

    run: name of the folder under results/: the recipe's, and a hash where settings were overridden. config:
    everything that the result depends on. metrics: final figures by name; BLEU, chrF and accuracy are
    percentages. signatures: the scorer's signature of a metric, where it has one. curve: one mapping an
    epoch. training: `seconds` (over all pieces of the run), `pieces`, and what else the kind of run tells.
    parameters: how many the model has. checkpoint_sha256: of the file that was scored. data: what the data
    folder was made from. git, packages, machine: where the last piece of the training ran; git is None
    outside a checkout. date: when the record was written, ISO 8601, UTC. published: the file in checkpoints/
    that was made of the run, and its own figures; None where there is none.
    """

    recipe: str
    run: str
    kind: str
    seed: int
    config: Mapping[str, Any]
    overrides: Mapping[str, Any]
    metrics: Mapping[str, float]
    signatures: Mapping[str, str]
    curve: list[Mapping[str, Any]]
    training: Mapping[str, Any]
    parameters: int
    checkpoint_sha256: str
    data: Mapping[str, Any]
    packages: Mapping[str, str]
    machine: Mapping[str, Any]
    date: str
    git: Mapping[str, Any] | None = None
    published: Mapping[str, Any] | None = None
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        """Raises ValueError where a field is not what a record holds."""
        if self.schema != SCHEMA:
            raise ValueError(f"schema is {self.schema!r}; this version reads schema {SCHEMA}")
        for field in dataclasses.fields(self):
            _check_type(field.name, getattr(self, field.name))
        for name, value in self.metrics.items():
            if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value):
                raise ValueError(f"metrics.{name} is {value!r}; expected a finite number")
        if not self.metrics:
            raise ValueError("metrics is empty; a record holds at least one figure")
        if unsigned := set(self.signatures) - set(self.metrics):
            raise ValueError(f"signatures.{min(unsigned)} has no figure in metrics")
        if not re.fullmatch(r"[0-9a-f]{64}", self.checkpoint_sha256):
            raise ValueError(
                f"checkpoint_sha256 is {self.checkpoint_sha256!r}; expected 64 hexadecimal digits"
            )
        if any(not isinstance(epoch, Mapping) or "epoch" not in epoch for epoch in self.curve):
            raise ValueError("curve holds an entry without `epoch`")
        if missing := {"seconds", "pieces"} - set(self.training):
            raise ValueError(f"training.{min(missing)} is missing")

    @property
    def path(self) -> Path:
        """Where the record lies, from the project's root."""
        return record_path(self.run, self.seed)

    def write(self, path: Path) -> None:
        """Writes the record as JSON, whole or not at all."""
        with atomic_file(path) as temporary:
            content = {"schema": self.schema, **dataclasses.asdict(self)}
            temporary.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n")


def record_path(run_name: str, seed: int) -> Path:
    """`results/<run name>/<seed>.json`."""
    return Path("results", run_name, f"{seed}.json")


def read_record(path: Path) -> Record:
    """Reads and checks a record; ValueError in one line that names the file and the field."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(
            f"{path}: not a JSON file ({error}): restore it from version control or run again"
        ) from None
    if not isinstance(content, dict):
        raise ValueError(f"{path}: a record is a JSON object")
    try:
        known = {field.name: field for field in dataclasses.fields(Record)}
        refuse_unknown_keys(content, known)
        for name, field in known.items():
            if name not in content and field.default is dataclasses.MISSING:
                raise ValueError(f"{name} is missing")
        return Record(**content)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def read_records(folder: Path) -> list[Record]:
    """All records under a results folder, by run name and seed; none where the folder is missing."""
    return sorted(
        (read_record(path) for path in folder.glob("*/*.json")), key=lambda record: (record.run, record.seed)
    )


def read_run_records(run_name: str) -> list[Record]:
    """The records of one run's seeds, in the current folder, by seed; none where it has none."""
    paths = Path("results", run_name).glob("*.json")
    return sorted((read_record(path) for path in paths), key=lambda record: record.seed)


_TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("recipe", "run", "kind", "checkpoint_sha256", "date"), (str,)),
    **dict.fromkeys(("seed", "parameters", "schema"), (int,)),
    **dict.fromkeys(
        ("config", "overrides", "metrics", "signatures", "training", "data", "packages", "machine"),
        (Mapping,),
    ),
    **dict.fromkeys(("git", "published"), (Mapping, type(None))),
    "curve": (list,),
}


def _check_type(name: str, value: Any) -> None:
    if not isinstance(value, _TYPES[name]) or isinstance(value, bool):
        expected = " or ".join("null" if kind is type(None) else kind.__name__ for kind in _TYPES[name])
        raise ValueError(f"{name} is {value!r}; expected {expected}")
