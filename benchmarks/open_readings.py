"""Test errors of published ResNet-20s with their own and with recalibrated running statistics (docs/vision.md).

published: as they are.
trained_on: after further iterations at the highest learning rate, as in the middle of a training.

Prints and appends JSON lines to study/results/benchmarks/open_readings.jsonl.

    python benchmarks/open_readings.py --data FOLDER [--only PART]

FOLDER contains cifar-10-batches-py.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import tempfile
from pathlib import Path
from typing import Any

import torch
from measuring.record import append_record, benchmark_parser

from rskip.vision.data import ImageSet, load_dataset
from rskip.vision.evaluation import evaluate, recalibrate
from rskip.vision.model_file import load_model
from rskip.vision.settings import TrainingSettings
from rskip.vision.training import Start, TrainingFolder, TrainingRun, image_training

PARTS = ("published", "trained_on")
BASELINE, RSKIP = ("checkpoints/cifar10_fast/preact20_1xskip", "checkpoints/cifar10_fast/preact20_2rskip_ln")
TRAINED_ON = ((RSKIP, "all"), (BASELINE, "all"), (RSKIP, "weights"))
CHECK_AFTER = (50, 100)  # numbers of further iterations after which a model is evaluated
IMAGES = 3_000  # number of images for recalibration and for the test


def published(data: Path, images: int, augment: bool) -> list[dict[str, Any]]:
    train, test = first(cifar(data, train=True), images), cifar(data, train=False)
    models = ((folder, load_model(Path(folder))[0]) for folder in (BASELINE, RSKIP))
    return [{"model": folder, **both_errors(model, train, test, augment=augment)} for folder, model in models]


def trained_on(data: Path, folder: str, decay: str) -> list[dict[str, Any]]:
    """Trains a published model further, with its own settings except for a constant learning rate, the highest one."""
    train, test = (first(cifar(data, train=train), IMAGES) for train in (True, False))
    model, description = load_model(Path(folder))
    settings = TrainingSettings(
        connection=description.config["connection"], schedule="one_cycle", iterations=100_000, lr=0.2, warmup_lr=0.2,
        nesterov=True, weight_decay=5e-4, decay=decay,
    )  # fmt: skip
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        run = training(settings, data, Path(temporary))
        run.model.load_state_dict(model.state_dict())
        for steps in CHECK_AFTER:
            while run.iteration < steps:
                run.step()
            train_error = rounded(100 * run.means()[1])
            run.begin_point()
            at = {"model": folder, "decay": decay, "lr": settings.lr, "iterations": steps, "train_error": train_error}
            rows.append({**at, **both_errors(run.model, train, test)})
            print(json.dumps(rows[-1]), flush=True)
    return rows


def both_errors(
    model: torch.nn.Module, images: ImageSet, test: ImageSet, *, augment: bool = True
) -> dict[str, Any]:
    """Test error in % with the running statistics and with those of the images; size of the running variances."""
    again = copy.deepcopy(model)
    recalibrate(again, images, augment=augment)
    variances = torch.cat([value for name, value in model.named_buffers() if name.endswith("running_var")])
    kept, recalibrated = (evaluate(each, test, dataset="cifar10") for each in (model, again))
    return {
        "error": kept.error,
        "recalibrated_error": recalibrated.error,
        "loss": rounded(kept.loss),
        "recalibrated_loss": rounded(recalibrated.loss),
        "smallest_variance": rounded(variances.min().item()),
        "variances_below_eps": int((variances < 1e-5).sum()),
    }


def training(settings: TrainingSettings, data: Path, folder: Path) -> TrainingRun:
    start = Start(settings=settings, files=TrainingFolder(folder), seed=1, device=torch.device("cpu"))
    return image_training(start, cifar(data, train=True), cifar(data, train=False))


def first(images: ImageSet, count: int) -> ImageSet:
    return dataclasses.replace(images, images=images.images[:count], labels=images.labels[:count])


def cifar(data: Path, *, train: bool) -> ImageSet:
    return load_dataset("cifar10", data, train=train)


def rounded(value: float) -> float | None:
    return float(f"{value:.5g}") if math.isfinite(value) else None


def main() -> None:
    parser = benchmark_parser(__doc__, "open_readings")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="folder with cifar-10-batches-py")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--images", type=int, default=50_000, help="images for recalibrating published models")
    parser.add_argument("--no-augment", action="store_false", dest="augment", help="recalibrate without augmentation")
    args = parser.parse_args()
    if args.data is None:
        print("not measured: give --data FOLDER")
        return
    if "published" in args.only:
        rows = published(args.data, args.images, args.augment)
        print(json.dumps(rows))
        conditions = {"precision": "float32", "recalibrated_by": args.images, "augmented": args.augment}
        append_record(args.output, "open_readings published", {**conditions, "rows": rows})
    if "trained_on" in args.only:
        conditions = {"precision": "float32", "recalibrated_by": IMAGES, "augmented": True, "test_images": IMAGES}
        for folder, decay in TRAINED_ON:
            rows = trained_on(args.data, folder, decay)
            append_record(args.output, "open_readings trained_on", {**conditions, "rows": rows})


if __name__ == "__main__":
    main()
