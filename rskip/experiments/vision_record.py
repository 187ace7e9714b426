"""A finished vision run as a record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime, timezone
from statistics import fmean
from typing import Any

from rskip.experiments.recipe import Recipe
from rskip.experiments.record import Record
from rskip.experiments.run_folder import RunFolder
from rskip.experiments.train_log import read_train_log
from rskip.experiments.vision_settings import VisionSettings
from rskip.files.checksum import sha256_file
from rskip.vision.model_file import load_model
from rskip.vision.training.curve import read_curve

_DECIMALS = 4


def vision_record(
    recipe: Recipe[VisionSettings],
    *,
    seed: int,
    folder: RunFolder,
    evaluation: Mapping[str, Any],
    data: Mapping[str, Any],
) -> Record:
    """The record of a run whose last iterate has been evaluated.

    Metrics: error, accuracy and top5_error (%) and test_loss of the last iterate on the test images, and train_loss,
    the mean over the last epoch's augmented training images.

    :param evaluation: `Evaluation.to_dict` of it.
    :param data: what the images are (`vision_data.describe_images`).
    """
    curve = read_curve(folder.training.curve)
    with folder.train_log.open(encoding="utf-8", errors="replace") as lines:
        starts = read_train_log(lines).starts
    if not curve or not starts:
        raise ValueError(f"{folder.path} doesn't tell of a training: move it away and run again")
    model, _ = load_model(folder.training.model)
    last, environment = curve[-1], starts[-1]
    figures = {
        "error": evaluation["error"],
        "accuracy": evaluation["accuracy"],
        "top5_error": evaluation["top5_error"],
        "test_loss": evaluation["loss"],
        "train_loss": last.train_loss,
    }
    return Record(
        recipe=recipe.name,
        run=recipe.run_name,
        kind=recipe.kind,
        seed=seed,
        config=recipe.config,
        overrides=dict(recipe.overrides),
        metrics={name: round(value, _DECIMALS) for name, value in figures.items()},
        signatures={},
        curve=[asdict(point) for point in curve],
        training={
            "seconds": last.seconds,
            "pieces": len(starts),
            "precision": environment["precision"],
            "epochs": last.epoch,
            "iterations": last.iteration,
            "images_per_second": round(fmean(point.images_per_second for point in curve), 1),
        },
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        checkpoint_sha256=sha256_file(folder.training.model),
        data=data,
        git=environment["git"],
        packages=environment["packages"],
        machine=environment["machine"],
        date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
    )
