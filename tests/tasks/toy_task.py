"""Your own task in one file: y = x + wx is fitted to points of a line, in milliseconds and without PyTorch.

kind: line
slope: 3.0
train: {steps: 20, lr: 0.1}
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from safetensors.numpy import load_file, save_file

from rskip.files.whole import atomic_file
from rskip.records import Record
from rskip.settings.paper import Paper
from rskip.tasks import Column, ModelDescription, Outcome, Task, Work
from rskip.tasks.process import CommandFailed
from rskip.tasks.run import Run


class TrainSettings(msgspec.Struct, frozen=True, kw_only=True):
    steps: Annotated[int, msgspec.Meta(ge=1)] = 20
    lr: float = 0.1


class LineSettings(msgspec.Struct, frozen=True, kw_only=True):
    slope: float
    train: TrainSettings = TrainSettings()


class Line:
    """A fitted line: `line(x)`."""

    def __init__(self, weight: float) -> None:
        self.weight = weight

    def __call__(self, x: float) -> float:
        return x + self.weight * x


def train(run: Run[LineSettings]) -> None:
    trained, state = scored_file(run), run.folder.path / "state.json"
    if trained.exists():
        return
    run.begin_session()
    at, weight = json.loads(state.read_text()) if state.exists() else (0, -float(run.seed))
    print(f"from step {at}")
    while at < run.settings.train.steps:
        at, weight = at + 1, step(run.settings, weight)
        with atomic_file(state) as temporary:
            temporary.write_text(json.dumps([at, weight]))
    save_file({"weight": np.array([weight])}, trained)


def step(settings: LineSettings, weight: float) -> float:
    if not abs(weight) < 1e9:
        raise CommandFailed(f"the weight is {weight}")
    return weight - settings.train.lr * 2 * (1 + weight - settings.slope)


def score(run: Run[LineSettings]) -> Outcome:
    weight = float(load_file(scored_file(run))["weight"][0])
    steps = run.settings.train.steps
    return Outcome(
        metrics={"distance": abs(1 + weight - run.settings.slope), "slope": 1 + weight, "steps": steps},
        signatures={"slope": "float64"},
        curve=[{"epoch": 1, "weight": weight}],
        training={"seconds": 60.0, "steps": steps},
        parameters=1,
        data={"points": "all"},
    )


def load(folder: Path, **_: Any) -> Line:
    return Line(float(load_file(folder / "model.safetensors")["weight"][0]))


def scored_file(run: Run[LineSettings]) -> Path:
    return run.folder.path / "trained.safetensors"


def commands(run: Run[LineSettings]) -> list[list[str]]:
    points = ["points", "--slope", str(run.settings.slope), *(["--from", run.mirror] if run.mirror else [])]
    return [points, ["fit", run.name, "--seed", str(run.seed), "--gpus", str(run.gpus)]]


def check(runs: Sequence[Run[LineSettings]]) -> None:
    if any(run.settings.slope > 1e6 for run in runs):
        raise ValueError("the line is too steep: expected a slope of at most 1e6")


def choose(records: Sequence[Record]) -> Record:
    return records[0]


def export_weights(run: Run[LineSettings], record: Record, folder: Path) -> dict[str, Any]:
    (weight,) = load_file(scored_file(run)).values()
    save_file({"weight": weight.astype(np.float32)}, folder / "model.safetensors")
    (folder / "line.json").write_text(json.dumps({"slope": run.settings.slope}))
    return {"distance": abs(1 + load(folder).weight - run.settings.slope)}


def describe(folder: Path, record: Record) -> ModelDescription:
    return ModelDescription(
        architecture="line",
        connection="1xskip",
        dataset="points",
        measured_on="points",
        split="all",
        data_terms="generated",
        paper=Paper("New methods for the determination of the orbits of comets", "Legendre", None),
    )


def work() -> Work[LineSettings]:
    return Work(
        settings=LineSettings,
        train=train,
        score=score,
        scored_file=scored_file,
        check=check,
        commands=commands,
        sample_outputs=lambda run, count: "\n".join(f"  of {x}" for x in range(count) if scored_file(run).exists()),
        artifacts=lambda run: {str(scored_file(run)): "the line"},
        choose=choose,
        architecture_changes=lambda config: {"lr": config["train"]["lr"]} if config["train"]["lr"] > 1 else {},
        export_weights=export_weights,
        describe=describe,
    )


TASK = Task(
    name="line",
    columns=(Column("distance", "distance"), Column("slope", "slope"), Column("steps", "steps", shown=False)),
    load=load,
    work=work,
    dataset=lambda config: "points",
    measures={"distance": "distance"},
    example='import rskip\n\nline = rskip.load("{name}")\nline(2.0)'.format,
)
