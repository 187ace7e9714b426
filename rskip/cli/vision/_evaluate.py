"""Evaluates a model of images, for `rskip vision evaluate`."""

from __future__ import annotations

import argparse
import json
import sys
import warnings

from rskip.cli._model import model_path
from rskip.cli._options import refuse_flags
from rskip.files.cache import expanded_path
from rskip.files.plot import check_plot
from rskip.machine.device import bfloat16_is_slow, choose_device, set_gpu_arithmetic
from rskip.machine.ranks import Ranks
from rskip.machine.torch_errors import memory_as_mistake
from rskip.tasks.training_folder import TrainingFolder
from rskip.vision.data import ImageSet, load_dataset
from rskip.vision.evaluation import draw_confusion, evaluate, evaluation_batch, recalibrate, text_form
from rskip.vision.model_file import TASK, ModelDescription, load_model
from rskip.vision.own_images import find_labelled_files, load_split
from rskip.vision.settings import images_name


@memory_as_mistake(": give a smaller --batch-size, or another --device")
def run(args: argparse.Namespace) -> int:
    """Prints the evaluation, and draws the plot if --plot is given."""
    warnings.filterwarnings("ignore", module=r"PIL\.")  # odd metadata; images that are too large are refused
    if args.plot is not None:
        check_plot(args.plot)
    device = choose_device(args.device, Ranks())
    set_gpu_arithmetic(device, training=False, same_shapes=True)
    expected = {name: getattr(args, name) for name in ("dataset", "depth", "connection")}
    model, description = load_model(
        model_path(args.model, task=TASK),
        expected={name: value for name, value in expected.items() if value is not None},
    )
    begun = TrainingFolder(description.path.parent).begun_with()
    precision = args.precision or ("float32" if begun is None else begun["precision"])
    if args.precision is None and precision != "float32":
        print(f"computing in {precision}, as in training; --precision float32 changes it", file=sys.stderr)
    if precision == "bfloat16" and bfloat16_is_slow(device):
        kind = "CPU" if device.type == "cpu" else "GPU"
        print(f"this {kind} has no bfloat16 instructions: --precision float32 is faster", file=sys.stderr)
    split, images = _images(description, args, args.split)
    name = description.dataset if description.images is None else images_name(args.data)
    if args.recalibrate:
        _, training_images = _images(description, args, "train")
        batch_size = evaluation_batch(images.images.shape[-1])
        flip = begun is None or begun.get("flip", True)
        recalibrate(model, training_images, batch_size=batch_size, flip=flip, device=device)
    evaluation = evaluate(
        model,
        images,
        dataset=name,
        batch_size=args.batch_size,
        device=device,
        precision=precision,
    )
    recalibrated = ", statistics recalibrated" if args.recalibrate else ""
    title = f"{description.name}, {name} {split}{recalibrated}"
    if args.plot is not None:
        draw_confusion(evaluation, args.plot, title=title)
    if args.json:
        model_figures = {**description.to_dict(), "parameters": sum(p.numel() for p in model.parameters())}
        asked = {"split": split, **({"recalibrated": True} if args.recalibrate else {})}
        print(json.dumps({"model": model_figures, **asked, **evaluation.to_dict()}, indent=2))
    else:
        print(f"{description.path}: {title}{description.status}\n{text_form(evaluation)}", end="")
    return 0


def _images(description: ModelDescription, args: argparse.Namespace, split: str | None) -> tuple[str, ImageSet]:
    """The name of a split, and its images."""
    if description.images is None:
        split = split or "test"
        if split not in ("test", "train"):
            raise ValueError(f"--split is {split}: expected test or train, which {description.dataset} has")
        return split, load_dataset(description.dataset, args.data, train=split == "train", download=args.download)
    refuse_flags({"--download": args.download}, "is only for a dataset, not for your own images")
    if args.data is None:
        raise ValueError(f"{description.path} was trained on your own images, {description.images.name}: give --data")
    files = find_labelled_files(expanded_path(args.data, "--data"), classes=description.classes)
    found, images = load_split(files, split, description.images)
    if split is None and found == "all":
        line = f"{files.path} has no splits and differs from the training images: evaluating all of its images"
        print(line, file=sys.stderr)
    return found, images
