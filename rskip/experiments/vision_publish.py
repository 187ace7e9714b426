"""The weights of a vision run as safetensors, shown to be the run's own."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from rskip.experiments.published_weights import check_scored_file, check_size
from rskip.experiments.recipe import Recipe
from rskip.experiments.record import Record, read_record, record_path
from rskip.experiments.run_folder import RunFolder
from rskip.experiments.vision_data import ensure_images
from rskip.experiments.vision_run import evaluate_model
from rskip.experiments.vision_settings import VisionSettings
from rskip.files.checksum import sha256_file
from rskip.machine.environment import gpus_to_use
from rskip.vision.model_file import CONFIG_FILE, FORMAT, TASK, load_model
from rskip.zoo.entry_of_record import MAX_LOSS


def fill(folder: Path, recipe: Recipe[VisionSettings], *, seed: int, mirror: str | None = None) -> Record:
    """Writes model.safetensors (float32) and config.json, which `rskip.vision.model_file.load_model` reads.

    :param folder: to write into.
    :returns: the run's record with `published` filled in.
    :raises FileNotFoundError: the run's files are gone.
    :raises ValueError: the file is over 20 MB, or the weights, read back, have an error more than 0.05 away from the
        record's.
    """
    from safetensors.torch import save_file

    record = read_record(record_path(recipe.run_name, seed))
    trained = RunFolder.of(recipe.run_name, seed).training.model
    check_scored_file(trained, record)
    dataset = recipe.settings.train.dataset
    images = ensure_images(dataset, mirror=mirror)["test"]
    model, description = load_model(trained)
    weights = folder / "model.safetensors"
    save_file({name: tensor.contiguous() for name, tensor in model.state_dict().items()}, weights)
    check_size(weights, dtype="float32")
    config = {
        "format": FORMAT,
        "task": TASK,
        "model": dict(description.config),
        "dataset": dataset,
        "classes": list(images.classes),
    }
    (folder / CONFIG_FILE).write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    found = evaluate_model(weights, dataset=dataset, images=images, gpus=_gpus_of(record))
    return dataclasses.replace(record, published=_figures(record, weights, error=found["error"]))


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
