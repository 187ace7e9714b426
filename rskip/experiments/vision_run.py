"""One vision run: train, evaluate the last iterate.

Each stage's output is whole or absent, and a stage whose output is there is not repeated, so a run that was stopped
anywhere goes on from there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rskip.experiments.process import child_environment, run_logged
from rskip.experiments.recipe import Recipe
from rskip.experiments.run_folder import RunFolder
from rskip.experiments.train_log import start_line
from rskip.experiments.training_precision import precision_here
from rskip.experiments.vision_commands import train_command
from rskip.experiments.vision_progress import VisionProgress
from rskip.experiments.vision_settings import VisionSettings
from rskip.files.whole import atomic_file
from rskip.machine.environment import describe_environment
from rskip.vision.data import ImageSet
from rskip.vision.evaluation import evaluate
from rskip.vision.model_file import load_model


def train(
    recipe: Recipe[VisionSettings], *, seed: int, folder: RunFolder, data: Path | None, gpus: int, lock: int
) -> None:
    """Trains to the end with `rskip vision train`, from the last checkpoint where there is one.

    :param gpus: how many, 0 for the CPU.
    :param lock: descriptor that the training inherits, so that the folder stays locked as long as it lives.
    """
    if folder.training.model.exists():
        return
    asked = recipe.settings.train.precision
    folder.keep_processes(max(gpus, 1))
    precision = folder.keep_precision(precision_here(asked, gpus=gpus))
    command = train_command(recipe, seed=seed, output=folder.training.path, data=data, gpus=gpus, precision=precision)
    resumed = folder.training.checkpoint.exists()
    print(f"{'resuming' if resumed else 'training'}; log: {folder.train_log}", flush=True)
    if precision != asked:
        print(f"in {precision}: the recipe says {asked}, which is slower on a processor that doesn't multiply it")
    environment = {**describe_environment(), "precision": precision}
    environment["machine"] |= {"gpus": gpus} if gpus > 0 else {"gpu": None}
    with folder.train_log.open("a", encoding="utf-8") as log:
        log.write(start_line({"started": time.strftime("%Y-%m-%dT%H:%M:%S%z"), **environment}))
    run_logged(
        command,
        log=folder.train_log,
        environment=child_environment(processes=max(gpus, 1)),
        inherited=[lock],
        on_poll=VisionProgress(folder.training.curve),
    )


def evaluate_last(*, dataset: str, folder: RunFolder, images: ImageSet, gpus: int) -> Mapping[str, Any]:
    """Evaluates what the training ended with, in float32; gives `Evaluation.to_dict`, kept in evaluation.json."""
    if not folder.evaluation.exists():
        print(f"evaluating on {len(images.labels):,} test images", flush=True)
        found = evaluate_model(folder.training.model, dataset=dataset, images=images, gpus=gpus)
        with atomic_file(folder.evaluation) as temporary:
            temporary.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return json.loads(folder.evaluation.read_text(encoding="utf-8"))


def evaluate_model(path: Path, *, dataset: str, images: ImageSet, gpus: int) -> dict[str, Any]:
    """Figures of the model in a file, as `Evaluation.to_dict` gives them, in float32.

    :param gpus: 0 for the CPU; one is used of any other number.
    """
    model, _ = load_model(path, expected={"dataset": dataset})
    return evaluate(model, images, dataset=dataset, device="cuda" if gpus > 0 else "cpu").to_dict()
