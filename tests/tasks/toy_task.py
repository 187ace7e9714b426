"""Your own task in one file: y = x + wx is fitted to points of a line, in milliseconds and without PyTorch.

kind: line
slope: 3.0
train: {steps: 20, lr: 0.1}
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from safetensors.numpy import load_file, save_file

from rskip.files.whole import atomic_file
from rskip.records import Record
from rskip.settings.paper import Paper
from rskip.tasks import Column, ModelDescription, Outcome, Task
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


class LineFitting(Task[LineSettings]):
    name = "line"
    columns = (Column("distance", "distance"), Column("slope", "slope"))
    more_figures = (Column("steps", "steps"),)
    measures = {"distance": "distance"}
    example = 'import rskip\n\nline = rskip.load("{name}")\nline(2.0)'

    @property
    def settings(self) -> type[LineSettings]:
        return LineSettings

    def dataset(self, config: Any) -> str:
        return "points"

    def architecture_changes(self, config: Any) -> dict[str, Any]:
        return {"lr": config["train"]["lr"]} if config["train"]["lr"] > 1 else {}

    def train(self, run: Run[LineSettings]) -> None:
        trained, state = self.scored_file(run), run.folder.path / "state.json"
        if trained.exists():
            return
        run.begin_session()
        step, weight = json.loads(state.read_text()) if state.exists() else (0, -float(run.seed))
        print(f"from step {step}")
        while step < run.settings.train.steps:
            step, weight = step + 1, self.step(run.settings, weight)
            with atomic_file(state) as temporary:
                temporary.write_text(json.dumps([step, weight]))
        save_file({"weight": np.array([weight])}, trained)

    def step(self, settings: LineSettings, weight: float) -> float:
        if not abs(weight) < 1e9:
            raise CommandFailed(f"the weight is {weight}")
        return weight - settings.train.lr * 2 * (1 + weight - settings.slope)

    def score(self, run: Run[LineSettings]) -> Outcome:
        weight = float(load_file(self.scored_file(run))["weight"][0])
        steps = run.settings.train.steps
        return Outcome(
            metrics={"distance": abs(1 + weight - run.settings.slope), "slope": 1 + weight, "steps": steps},
            signatures={"slope": "float64"},
            curve=[{"epoch": 1, "weight": weight}],
            training={"seconds": 60.0, "steps": steps},
            parameters=1,
            data={"points": "all"},
        )

    def diverged(self, run: Run[LineSettings]) -> Outcome:
        raise AssertionError("no line diverges")

    def scored_file(self, run: Run[LineSettings]) -> Path:
        return run.folder.path / "trained.safetensors"

    def commands(self, run: Run[LineSettings]) -> list[list[str]]:
        points = ["points", "--slope", str(run.settings.slope), *(["--from", run.mirror] if run.mirror else [])]
        return [points, ["fit", run.name, "--seed", str(run.seed), "--gpus", str(run.gpus)]]

    def sample_outputs(self, run: Run[LineSettings], count: int) -> str:
        return "\n".join(f"  of {x}" for x in range(count)) if self.scored_file(run).exists() else ""

    def artifacts(self, run: Run[LineSettings]) -> dict[str, str]:
        return {str(self.scored_file(run)): "the line"}

    def export_weights(self, run: Run[LineSettings], record: Record, folder: Path) -> dict[str, Any]:
        (weight,) = load_file(self.scored_file(run)).values()
        save_file({"weight": weight.astype(np.float32)}, folder / "model.safetensors")
        (folder / "line.json").write_text(json.dumps({"slope": run.settings.slope}))
        return {"distance": abs(1 + self.load(folder).weight - run.settings.slope)}

    def describe(self, folder: Path, record: Record) -> ModelDescription:
        return ModelDescription(
            architecture="line",
            connection="1xskip",
            dataset="points",
            measured_on="points",
            split="all",
            data_terms="generated",
            paper=Paper("New methods for the determination of the orbits of comets", "Legendre", None),
        )

    def load(self, folder: Path, **_: Any) -> Line:
        return Line(float(load_file(folder / "model.safetensors")["weight"][0]))
