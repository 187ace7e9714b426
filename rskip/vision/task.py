"""Image classification: a PreAct-ResNet is trained on CIFAR; its last iterate is evaluated, never the best one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from rskip.records import Record
from rskip.settings.errors import SettingError
from rskip.tasks.task import Column, ModelDescription, Outcome, Task

if TYPE_CHECKING:
    import torch

    from rskip.connections import ConnectionSpec
    from rskip.tasks.run import Run
    from rskip.tasks.subject import Conditions, Subject
    from rskip.vision import Classifier
    from rskip.vision.recipe import VisionSettings


class _Train(TypedDict):
    dataset: str


class _Recorded(TypedDict):
    train: _Train


class VisionTask(Task["VisionSettings"]):
    """Small images to classes, by a PreAct-ResNet."""

    name = "image-classification"
    kind = "vision"
    programs = ("rskip",)
    probed = True
    columns = (Column("error", "error, %"), Column("accuracy", "accuracy, %"))
    more_figures = (Column("top5_error", "top-5 error, %"),)
    measures = {"error": "error, %", "accuracy": "accuracy, %"}
    precisions = ("float32", "bfloat16", "float16")
    model_files = ("config.json",)
    recorded = _Recorded
    example = """\
import rskip
from PIL import Image

model = rskip.load("{name}")
image = model.transforms()(Image.open("picture.png").resize((32, 32)))  # (3, 32, 32), normalised
model.classes[model(image[None]).argmax().item()]"""

    @property
    def settings(self) -> type[VisionSettings]:
        from rskip.vision.recipe import VisionSettings

        return VisionSettings

    def read_settings(self, content: Mapping[str, Any]) -> VisionSettings:
        from rskip.vision.recipe import check_required
        from rskip.vision.settings import without_removed

        check_required(content)
        if isinstance(train := content.get("train"), Mapping):
            content = {**content, "train": without_removed(train)}
        return super().read_settings(content)

    def config(self, settings: VisionSettings) -> dict[str, Any]:
        return {"train": settings.train.to_dict()}

    def dataset(self, config: Mapping[str, Any]) -> str:
        return str(config["train"]["dataset"])

    def check(self, settings: VisionSettings, *, gpus: int) -> None:
        if gpus > (size := settings.train.batch_size):
            raise SettingError("train.batch_size", f"is {size}", expected=f"at least one image for each of {gpus} GPUs")

    def train(self, run: Run[VisionSettings]) -> None:
        from rskip.vision.recipe import ensure_images, train

        ensure_images(run.settings.train.dataset, mirror=run.mirror)
        print(f"{run.name}, seed {run.seed}", flush=True)
        train(run)

    def score(self, run: Run[VisionSettings]) -> Outcome:
        from rskip.vision.recipe import score

        return score(run)

    def diverged(self, run: Run[VisionSettings]) -> Outcome:
        from rskip.vision.recipe import diverged

        return diverged(run)

    def scored_file(self, run: Run[VisionSettings]) -> Path:
        from rskip.vision.recipe import training_folder

        return training_folder(run).model

    def commands(self, run: Run[VisionSettings]) -> list[list[str]]:
        from rskip.vision.recipe import commands

        return commands(run)

    def sample_outputs(self, run: Run[VisionSettings], count: int) -> str:
        from rskip.vision.recipe import worst_classes

        return worst_classes(run, count)

    def artifacts(self, run: Run[VisionSettings]) -> dict[str, str]:
        from rskip.vision.recipe import evaluation_file

        return {
            str(run.folder.train_log): "what the training printed",
            str(evaluation_file(run)): "errors of each class, and the confusion matrix",
            str(self.scored_file(run)): "the model, for `rskip vision evaluate`",
        }

    def implied_figures(self, record: Record) -> dict[str, float | None]:
        """Those of the curve's last line where training computed in float32, as scoring always does."""
        exact = record.training.get("precision", "float32") == "float32"
        last = record.curve[-1] if record.curve and exact else {}
        figures = {"error": last.get("test_error"), "test_loss": last.get("test_loss")}
        return {**figures, "accuracy": 100 - record.metrics["error"] if "error" in record.metrics else None}

    def export_weights(self, run: Run[VisionSettings], record: Record, folder: Path) -> dict[str, Any]:
        from rskip.vision.publishing import export_weights

        return export_weights(run, record, folder)

    def describe(self, folder: Path, record: Record) -> ModelDescription:
        from rskip.vision.publishing import describe

        return describe(folder, record)

    def load(self, folder: Path, *, precision: str, device: torch.device) -> Classifier:
        from rskip.vision import Classifier

        return Classifier.from_pretrained(folder / "model.safetensors", precision=precision, device=device)

    def subject(self, model: ConnectionSpec | Path, *, depth: int | None, conditions: Conditions) -> Subject:
        """A PreAct-ResNet (depth 110 by default) on CIFAR's images, CIFAR-10's at initialisation."""
        from rskip.vision.subject import subject

        return subject(model, depth=depth, conditions=conditions)
