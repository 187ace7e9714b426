"""The weights of a vision run as safetensors, shown to be the run's own."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from rskip.checksum import sha256_file
from rskip.experiments.environment import gpus_to_use
from rskip.experiments.published_folder import (
    MAX_BYTES,
    check_scored_file,
    check_size,
    published_folder,
    write_published,
)
from rskip.experiments.recipe import Recipe
from rskip.experiments.record import Record, read_record, record_path
from rskip.experiments.run_folder import RunFolder
from rskip.experiments.vision_data import ensure_images
from rskip.experiments.vision_run import evaluate_model
from rskip.experiments.vision_settings import VisionSettings
from rskip.vision.model_file import CONFIG_FILE, TASK, load_model

MAX_LOSS = 0.05  # % of the test images: another device rounds otherwise


def publish(recipe: Recipe[VisionSettings], *, seed: int, mirror: str | None = None) -> Record:
    """Writes `checkpoints/<run>/` from a finished run; returns its record with `published` filled in.

    The folder holds model.safetensors (float32), config.json and record.json, and is what `rskip vision evaluate` and
    `rskip.vision.model_file.load_model` read. One seed of a run is published at a time; a folder published before is
    replaced when the new one is whole. Raises FileNotFoundError where the run's files are gone; ValueError where the
    file is over 20 MB or the weights, read back, have an error more than 0.05 away from the record's.
    """
    from safetensors.torch import save_file

    record = read_record(record_path(recipe.run_name, seed))
    trained = RunFolder.of(recipe.run_name, seed).training.model
    check_scored_file(trained, record)
    dataset = recipe.settings.train.dataset
    images = ensure_images(dataset, mirror=mirror)["test"]
    model, description = load_model(trained)
    config = {
        "task": TASK,
        "model": dict(description.config),
        "dataset": dataset,
        "classes": list(images.classes),
    }
    with published_folder(recipe.run_name) as building:
        weights = building / "model.safetensors"
        save_file({name: tensor.contiguous() for name, tensor in model.state_dict().items()}, weights)
        check_size(weights, most=MAX_BYTES, dtype="float32")
        (building / CONFIG_FILE).write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
        found = evaluate_model(weights, dataset=dataset, images=images, gpus=_gpus_of(record))
        published = dataclasses.replace(record, published=_figures(record, weights, error=found["error"]))
        published.write(building / "record.json")
    write_published(published)
    return published


def _gpus_of(record: Record) -> int:
    """The device that the run was evaluated on, where there is one: others round otherwise."""
    return gpus_to_use(None) if record.machine.get("gpu") else 0


def _figures(record: Record, weights: Path, *, error: float) -> dict[str, str | int | float]:
    if abs(error - record.metrics["error"]) > MAX_LOSS:
        raise ValueError(
            f"{record.run} has {error:.2f} % error when its published weights are read back, "
            f"{record.metrics['error']:.2f} before: expected at most {MAX_LOSS} between them"
        )
    return {
        "file": weights.name,
        "dtype": "float32",
        "bytes": weights.stat().st_size,
        "sha256": sha256_file(weights),
        "error": round(error, 4),
    }
