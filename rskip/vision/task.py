"""Defines the task vision: it trains an image model and evaluates its last iterate, never the best one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rskip.records import Record
from rskip.tasks.task import Column, Task, imported
from rskip.vision.settings import images_name


class VisionTask(Task[Any]):
    """Classifies images with a PreAct-ResNet or a ResNet of torchvision."""

    name = "vision"
    probed = True
    columns = (Column("error", "error, %"), Column("accuracy", "accuracy, %"))
    more_figures = (Column("top5_error", "top-5 error, %"),)
    measures = {"error": "error, %", "accuracy": "accuracy, %"}
    precisions = ("float32", "bfloat16", "float16")
    example = """\
import rskip
from PIL import Image

model = rskip.load("{name}")
image = model.transforms()(Image.open("image.png").resize((32, 32)))  # (3, 32, 32), normalised
model.classes[model(image[None]).argmax().item()]"""

    settings = imported("rskip.vision.settings:VisionSettings")
    read_settings = imported("rskip.vision.settings")
    check = imported("rskip.vision.settings:check_gpus")
    check_mirror = imported("rskip.vision.run")
    train = imported("rskip.vision.run")
    scored_file = imported("rskip.vision.run")
    commands = imported("rskip.vision.run")
    score = imported("rskip.vision.run")
    diverged = imported("rskip.vision.run")
    sample_outputs = imported("rskip.vision.run")
    artifacts = imported("rskip.vision.run")
    check_publishable = imported("rskip.vision.publishing")
    export_weights = imported("rskip.vision.publishing")
    describe = imported("rskip.vision.publishing")
    load = imported("rskip.vision.classifier:load_published")
    subject = imported("rskip.vision.subject")

    def dataset(self, config: Mapping[str, Any]) -> str:
        train = config["train"]
        if train.get("data") is None:
            return str(train["dataset"])
        return images_name(train["data"])

    def implied_figures(self, record: Record) -> dict[str, float | None]:
        """The metrics in the curve's last line, if the training computed in float32 like scoring."""
        exact = record.training.get("precision", "float32") == "float32"
        other = record.data.get("scored_on") == "test" and "valid" in record.data["images"]  # not on the curve's
        last = record.curve[-1] if record.curve and exact and not other else {}
        figures = {"error": last.get("test_error"), "test_loss": last.get("test_loss")}
        return {**figures, "accuracy": 100 - record.metrics["error"] if "error" in record.metrics else None}
