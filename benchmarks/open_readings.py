"""Measurements for questions that the papers leave open on images.

signals: PreAct-ResNet-110 at initialisation, with batch statistics in batch normalisation. RMS of the blocks' outputs
at the ends of the three stages, gradients there (rskip.analysis.signals), and gates, as lists with one value per seed.
In float32, and in float64 for 3xskip, whose squares overflow float32.
start: the first iterations of 3xskip at depth 110 as in `rskip vision train`: losses, and the iteration at which a
weight or a running statistic is no longer finite.
published: test errors of the published ResNet-20s with their own and with recalibrated running statistics.
trained_on: the same after further iterations at the highest learning rate, as in the middle of a training.

Prints and appends JSON lines to study/results/benchmarks/open_readings.jsonl.

    python benchmarks/open_readings.py --data FOLDER [--only PART ...] [--iterations 80]

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
import torch.nn.functional as F
from measuring.record import append_record, benchmark_parser
from torch import Tensor

from rskip.analysis.blocks import residual_blocks
from rskip.analysis.signals import SignalRecorder
from rskip.vision import preact_resnet
from rskip.vision.data import ImageSet, evaluation_batches, load_dataset
from rskip.vision.evaluation import evaluate, recalibrate
from rskip.vision.model_file import load_model
from rskip.vision.settings import TrainingSettings
from rskip.vision.training import Start, TrainingFolder, TrainingRun, image_training

PARTS = ("signals", "start", "published", "trained_on")
EXAMPLES = 64
SEEDS = (1, 2, 3)
MODELS = (
    ("1xskip", "raw"), ("1xskip", "activated"), ("3xskip", "raw"), ("3xskip", "activated"), ("1xskip+ln", "raw"),
    ("1xskip+ln", "activated"), ("2rskip+ln", "raw"), ("2rskip+ln", "activated"), ("1xskip+gn1", "activated"),
    ("2xskip+ln", "activated"), ("2xskip+gn1", "activated"), ("2rskip+gn1", "activated"), ("highway", "activated"),
    ("highway:bias=-6", "activated"), ("highway:bias=-6,gate=full", "activated"),
)  # fmt: skip
STAGE_ENDS = (18, 36, 54)
BASELINE, RSKIP = ("checkpoints/cifar10_fast/preact20_1xskip", "checkpoints/cifar10_fast/preact20_2rskip_ln")
TRAINED_ON = ((RSKIP, "all"), (BASELINE, "all"), (RSKIP, "weights"))
CHECK_AFTER = (50, 100)  # numbers of further iterations after which a model is evaluated
IMAGES = 3_000  # number of images for recalibration and for the test


def signals(data: Path) -> list[dict[str, Any]]:
    images, labels = next(evaluation_batches(cifar(data, train=True), batch_size=EXAMPLES, device="cpu"))
    found = []
    for connection, shortcut_input in MODELS:
        values = signals_of(connection, shortcut_input, images, labels)
        found.append({"connection": connection, "shortcut_input": shortcut_input, **values})
    return found


def signals_of(connection: str, shortcut_input: str, images: Tensor, labels: Tensor) -> dict[str, Any]:
    """RMS and gradients at the ends of stages, and gates, for each seed."""
    found: dict[str, Any] = {"loss": [], "y_rms": [], "gradient": [], "middle_stage_gradient_ratio": []}
    for seed in SEEDS:
        torch.manual_seed(seed)
        dtype = torch.float64 if connection == "3xskip" else torch.float32
        model = preact_resnet(110, connection, shortcut_input=shortcut_input).to(dtype).train()
        recorder = SignalRecorder(residual_blocks(model))
        with recorder.recording():
            loss = F.cross_entropy(model(images.to(dtype)), labels, reduction="sum")
            loss.backward()
        rows = {row["block"]: row for row in recorder.rows()}
        found["loss"].append(rounded(loss.item() / EXAMPLES))
        found["y_rms"].append([rounded(rows[end]["y_rms"]) for end in STAGE_ENDS])
        found["gradient"].append([rounded(rows[block]["gradient"]) for block in (1, *STAGE_ENDS)])
        found["middle_stage_gradient_ratio"].append(rounded(rows[19]["gradient"] / rows[36]["gradient"]))
        for gate in sorted({"transform"} & rows[1].keys()):
            found.setdefault(gate, []).append([rounded(rows[end][gate]) for end in STAGE_ENDS])
    print(connection, shortcut_input, json.dumps(found), flush=True)
    return found


def start(data: Path, iterations: int) -> list[dict[str, Any]]:
    """3xskip in both interpretations."""
    found = []
    for shortcut_input in ("raw", "activated"):
        settings = TrainingSettings(depth=110, connection="3xskip", shortcut_input=shortcut_input, iterations=1000)
        with tempfile.TemporaryDirectory() as folder:
            run = training(settings, data, Path(folder))
            losses, not_finite = [], None
            for _ in range(iterations):
                run.begin_point()
                run.step()
                losses.append(run.means()[0])
                if not_finite is None and (names := not_finite_names(run.model)):
                    not_finite = {"after_iterations": run.iteration, "first": names[0], "tensors": len(names)}
                if run.iteration % 10 == 0:
                    print(shortcut_input, run.iteration, losses[-1], not_finite, flush=True)
        kept = [1, *range(10, iterations + 1, 10)]
        means = [sum(losses[max(0, end - 10) : end]) / min(10, end) for end in kept]
        row = {"shortcut_input": shortcut_input, "iterations": kept, "loss_of_last_10": [*map(rounded, means)]}
        found.append({"connection": "3xskip", "depth": 110, **row, "not_finite": not_finite})
    return found


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


def not_finite_names(model: torch.nn.Module) -> list[str]:
    return [name for name, tensor in model.state_dict().items() if not tensor.isfinite().all()]


def rounded(value: float) -> float | None:
    return float(f"{value:.5g}") if math.isfinite(value) else None


def main() -> None:
    parser = benchmark_parser(__doc__, "open_readings")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="folder with cifar-10-batches-py")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--iterations", type=int, default=80, help="number of iterations of the part start")
    parser.add_argument("--images", type=int, default=50_000, help="images for recalibrating published models")
    parser.add_argument("--no-augment", action="store_false", dest="augment", help="recalibrate without augmentation")
    args = parser.parse_args()
    if args.data is None:
        print("not measured: give --data FOLDER")
        return
    common = {"depth": 110, "examples": EXAMPLES, "seeds": SEEDS, "batch_norm": "training"}
    if "signals" in args.only:
        append_record(args.output, "open_readings signals", {**common, "rows": signals(args.data)})
    if "start" in args.only:
        rows = start(args.data, args.iterations)
        append_record(args.output, "open_readings start", {"precision": "float32", "rows": rows})
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
