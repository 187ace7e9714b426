"""Recipes of kind vision: train a PreAct-ResNet, evaluate its last iterate."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rskip.experiments.kind import Kind
from rskip.experiments.recipe import Recipe
from rskip.experiments.record import Record
from rskip.experiments.run_folder import RunFolder
from rskip.experiments.training_precision import precision_here
from rskip.experiments.vision_commands import evaluate_command, train_command
from rskip.experiments.vision_data import describe_images, ensure_images, image_folder
from rskip.experiments.vision_publish import fill
from rskip.experiments.vision_record import vision_record
from rskip.experiments.vision_run import evaluate_last, train
from rskip.experiments.vision_settings import VisionSettings


class VisionKind(Kind[VisionSettings]):
    """`rskip vision train` trains; the last iterate is evaluated, never the best one on the test images."""

    programs = ("rskip",)

    def check(self, recipe: Recipe[VisionSettings], *, gpus: int) -> None:
        size = recipe.settings.train.batch_size
        if gpus > size:
            raise ValueError(f"--gpus {gpus}: train.batch_size is {size}, fewer images than GPUs; use fewer GPUs")

    def train_and_score(
        self,
        recipe: Recipe[VisionSettings],
        *,
        seed: int,
        folder: RunFolder,
        mirror: str | None,
        gpus: int,
        lock: int,
    ) -> Record:
        dataset = recipe.settings.train.dataset
        images = ensure_images(dataset, mirror=mirror)
        print(f"{recipe.run_name}, seed {seed}", flush=True)
        train(recipe, seed=seed, folder=folder, data=image_folder(mirror), gpus=gpus, lock=lock)
        evaluation = evaluate_last(dataset=dataset, folder=folder, images=images["test"], gpus=gpus)
        data = describe_images(dataset, images)
        return vision_record(recipe, seed=seed, folder=folder, evaluation=evaluation, data=data)

    def commands(
        self, recipe: Recipe[VisionSettings], *, seeds: Sequence[int], mirror: str | None, gpus: int
    ) -> list[list[str]]:
        data, precision = image_folder(mirror), precision_here(recipe.settings.train.precision, gpus=gpus)
        commands = []
        for seed in seeds:
            output = RunFolder.of(recipe.run_name, seed).training.path
            commands += [
                train_command(recipe, seed=seed, output=output, data=data, gpus=gpus, precision=precision),
                evaluate_command(model=output, data=data, gpus=gpus),
            ]
        return commands

    def examples(self, recipe: Recipe[VisionSettings], *, folder: RunFolder) -> str:
        """The classes with the highest error, and what each is most often taken for. Several lines."""
        if not folder.evaluation.exists():
            return ""
        classes = json.loads(folder.evaluation.read_text(encoding="utf-8"))["per_class"]
        worst = sorted(classes, key=lambda each: each["error"] or 0.0, reverse=True)[: recipe.show]
        return "\n".join(["", *(_shown(each) for each in worst)])

    def places(self, record: Record) -> dict[str, str]:
        folder = RunFolder.of(record.run, record.seed)
        return {
            str(folder.train_log): "what the training printed",
            str(folder.evaluation): "every class, and which are taken for which",
            str(folder.training.model): "the model, for `rskip vision evaluate`",
        }

    def to_publish(self, records: Sequence[Record]) -> Record:
        """The first: there is no validation set to choose by."""
        return records[0]

    def fill(self, folder: Path, recipe: Recipe[VisionSettings], *, seed: int, mirror: str | None) -> Record:
        return fill(folder, recipe, seed=seed, mirror=mirror)


def _shown(figures: Mapping[str, Any]) -> str:
    line = f"  {figures['name']:<18}error {figures['error']:5.2f} %"
    if figures["taken_for"]:
        line += f"   most often taken for {figures['taken_for']} ({figures['taken']} of {figures['count']})"
    return line
