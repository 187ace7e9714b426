"""The task vision: it trains an image model and evaluates its last iterate, never the best one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rskip import vision
from rskip.tasks import Column, Task, Work
from rskip.vision.settings import VisionSettings, images_name


def _work() -> Work[VisionSettings]:
    from rskip.tasks.looped import scored_file
    from rskip.vision import run
    from rskip.vision.subject import subject

    return Work(
        settings=VisionSettings,
        required=["train.connection"],
        train=run.train,
        score=run.score,
        scored_file=scored_file,
        check=run.check,
        commands=run.commands,
        sample_outputs=run.sample_outputs,
        artifacts=run.artifacts,
        check_publishable=run.check_publishable,
        export_weights=run.export_weights,
        describe=run.describe,
        subject=subject,
    )


def _dataset(config: Mapping[str, Any]) -> str:
    train = config["train"]
    return str(train["dataset"]) if train.get("data") is None else images_name(train["data"])


TASK = Task(
    name="vision",
    columns=(
        Column("error", "error, %"),
        Column("accuracy", "accuracy, %"),
        Column("top5_error", "top-5 error, %", shown=False),
    ),
    load=lambda folder, **options: vision.Classifier.from_pretrained(folder / "model.safetensors", **options),
    work=_work,
    dataset=_dataset,
    probed=True,
    precisions=("float32", "bfloat16", "float16"),
    example="""\
import rskip
from PIL import Image

model = rskip.load("{name}")
image = model.transforms()(Image.open("image.png").resize((32, 32)))  # (3, 32, 32), normalised
model.classes[model(image[None]).argmax().item()]""".format,
    use="""\
For images like those of {dataset} (32 × 32 pixels), as a baseline in studies of residual connections, and to try rskip.
Not for other images: it assigns one of its classes to any image, often with a high probability.""",
)
