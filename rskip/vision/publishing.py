"""Exports a vision run's weights as safetensors, and describes them for the registry."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rskip.checkpoint import Checkpoint, write_model
from rskip.checkpoint.config_file import WEIGHTS, read_config
from rskip.connections import ConnectionSpec, Paper, parse_connection
from rskip.machine.environment import gpus_to_use
from rskip.records import Record
from rskip.tasks.run import Run
from rskip.tasks.task import ModelDescription
from rskip.vision.datasets import DATASETS
from rskip.vision.model_file import TASK, load_model
from rskip.vision.run import DECIMALS, ensure_images, evaluate_model, scored_file
from rskip.vision.settings import VisionSettings

_BASELINE = ConnectionSpec("xskip", 1)  # the PreAct-ResNet's original connection, of this paper
_PREACT_RESNET = Paper(
    title="Identity Mappings in Deep Residual Networks",
    authors="Kaiming He, Xiangyu Zhang, Shaoqing Ren, Jian Sun",
    url="https://arxiv.org/abs/1603.05027",
)


def check_publishable(record: Record) -> None:
    """:raises ValueError: the run was trained on your own images."""
    if (own := record.config["train"].get("data")) is not None:
        raise ValueError(
            f"{record.run} was trained on your own images, {own}: a published model names a dataset and its terms; "
            "share the folder of the training run, which `rskip.load` reads, instead"
        )


def export_weights(run: Run[VisionSettings], record: Record, folder: Path) -> dict[str, Any]:
    """Writes model.safetensors (float32) and config.json, which `rskip.vision.model_file.load_model` reads.

    :returns: the error of the exported weights.
    """
    dataset = run.settings.train.dataset
    images = ensure_images(run.settings.train, mirror=run.mirror).test
    model, description = load_model(scored_file(run))
    config = {"task": TASK, "model": dict(description.config), "dataset": dataset, "classes": list(images.classes)}
    write_model(folder, Checkpoint(model=model.state_dict(), config=config))
    gpus = gpus_to_use(None) if record.machine.get("gpu") else 0  # as in the run, since other devices round differently
    found = evaluate_model(folder / WEIGHTS, dataset=dataset, images=images, gpus=gpus)
    return {"error": round(found["error"], DECIMALS)}


def describe(folder: Path, record: Record) -> ModelDescription:
    """Describes the model in a published folder, from its config.json."""
    config = read_config(folder / WEIGHTS)
    dataset, model = config["dataset"], config["model"]
    connection = model["connection"]
    spec = parse_connection(connection)
    return ModelDescription(
        architecture=model["name"] if "name" in model else _preact_name(model),
        connection=connection,
        dataset=dataset,
        measured_on=dataset,
        split="test",
        data_terms=DATASETS[dataset].terms,
        paper=_PREACT_RESNET if spec == _BASELINE else spec.paper,
    )


def _preact_name(model: Mapping[str, Any]) -> str:
    """The architecture's name, such as preact_resnet20, with the settings that differ from the defaults."""
    depth, shortcut = model["depth"], model["shortcut"]
    block, shortcut_input = model.get("block", "basic"), model.get("shortcut_input", "raw")
    parts = [
        f"preact_resnet{depth}",
        *([block] if block != ("bottleneck" if depth == 164 else "basic") else []),
        *([shortcut] if shortcut != "zero_pad" else []),
        *([shortcut_input] if shortcut_input != "raw" else []),
    ]
    return "_".join(parts)
