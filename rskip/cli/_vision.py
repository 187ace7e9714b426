"""The work of `rskip vision train` and `rskip vision evaluate`."""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from rskip.checkpoint.config_file import WEIGHTS
from rskip.cli._looped import run_training
from rskip.cli._model import model_path
from rskip.cli._options import given_options, refuse_flags
from rskip.cli._training import changes_of_set
from rskip.experiments.recipe import load_recipe
from rskip.files.cache import expanded_path
from rskip.files.names import line_name
from rskip.files.plot import check_plot
from rskip.machine import device as devices
from rskip.machine.device import bfloat16_is_slow, choose_device, set_gpu_arithmetic
from rskip.machine.ranks import Ranks
from rskip.machine.torch_errors import memory_as_mistake
from rskip.settings.check import convert
from rskip.settings.user_dir import suggested_command
from rskip.tasks.training import TrainingRun
from rskip.tasks.training_folder import TrainingFolder
from rskip.vision.data import ImageSet, load_dataset
from rskip.vision.datasets import DATASETS
from rskip.vision.evaluation import draw_confusion, evaluate, evaluation_batch, recalibrate, text_form
from rskip.vision.labelled_files import LAYOUT, find_labelled_files, kind_of_images
from rskip.vision.model_file import TASK, ModelDescription, load_model
from rskip.vision.own_images import load_split
from rskip.vision.settings import OWN, TrainingSettings, chosen_schedule, images_name
from rskip.vision.training import train

BEST_PRECISION = "bfloat16"  # where the device has instructions for it
CIFAR_IMAGES = 50_000  # of CIFAR-10 and of CIFAR-100, for training


def train_model(args: argparse.Namespace) -> int:
    """Trains, or resumes a training."""
    warnings.filterwarnings("ignore", module=r"PIL\.")  # odd metadata; images that are too large are refused

    def begin(ranks: Ranks) -> tuple[TrainingSettings, Callable[..., TrainingRun[Any]]]:
        with ranks.together():
            device = devices.choose_device(args.device, ranks)
        slow = slow_rank(device, ranks)
        with ranks.together():
            settings, notes = training_settings(args, device, ranks, slow=slow)
        return settings, partial(train, data=args.data, download=args.download, notes=notes)

    def done(result: TrainingRun[Any]) -> str:
        data = args.data if result.settings.data is None else result.settings.data
        given = [] if data is None else ["--data", str(data)]
        evaluation = suggested_command("rskip", "vision", "evaluate", str(args.output), *given)
        return (
            f"{args.output / WEIGHTS}: {result.name}: {result.evaluated_on} error {result.points[-1].test_error:.2f} % "
            f"in {result.settings.precision} after {result.iteration:,} iterations ({result.seconds / 60:,.1f} min)\n"
            f"error per class: {evaluation}"
        )

    return run_training(args, "vision train", begin, done)


def training_settings(
    args: argparse.Namespace, device: torch.device, ranks: Ranks, *, slow: int | None
) -> tuple[TrainingSettings, list[str]]:
    """The settings of the recipe or of the papers with the given changes, and notes on the chosen ones.

    A resumed training uses the choices of its earlier sessions. If --probe-every is not given, it is taken from the
    recipe.

    :param slow: see `slow_rank`.
    """
    apart = ("precision", "data")
    given = {field: value for field, value in given_options(args, TrainingSettings).items() if field not in apart}
    changes = changes_of_set(args)
    if (args.epochs is None) != (args.iterations is None):  # the one that is given replaces the recipe's other one
        given |= {field: given.get(field) for field in ("epochs", "iterations") if field not in changes}
    given |= _own_images(args, given, changes)
    said = {*given, *changes}
    notes: list[str] = []
    if args.recipe is None:
        rule: dict[str, Any] = {}
        chosen = {**changes, **given}
        if (data := chosen.get("data")) is not None:
            rule, notes = _rule(data, chosen)
        elif chosen.get("model") == "vit":
            rule = chosen_schedule(CIFAR_IMAGES, chosen)
            notes = [_told("chosen for a vision transformer", rule)]
        settings = convert({"precision": BEST_PRECISION, **rule, **changes, **given}, TrainingSettings)
        settings.check_used(given)
    else:
        overrides = [f"train.{text.removeprefix('train.')}" for text in args.changes]
        overrides += [f"train.{field}={json.dumps(value)}" for field, value in given.items()]
        recipe = load_recipe(args.recipe, overrides=overrides)
        if (kind := recipe.task.name) != "vision":
            raise ValueError(f"{args.recipe} is a recipe of kind {kind}, expected vision: `rskip run` runs it")
        settings = recipe.settings.train
        said |= {name for name in recipe.written["train"] if name != "precision"}
        if args.probe_every is None and recipe.own.probe is not None:
            args.probe_every = recipe.own.probe.every
    if args.precision != "auto":
        settings = replace(settings, precision=args.precision)
        said.add("precision")
    begun = TrainingFolder(args.output).begun_with() or {}
    kept = {name: begun[name] for name in ("precision", "compile") if name not in said and name in begun}
    settings = replace(settings, **kept)
    if slow is not None and settings.precision == "bfloat16" and "precision" not in {*said, *kept}:
        settings = replace(settings, precision="float32")
        kind = "CPU" if device.type == "cpu" else "GPU"
        which = f"this {kind}" if ranks.count == 1 else f"process {slow}'s {kind}"
        notes.append(f"computing in float32: {which} has no bfloat16 instructions")
    return settings, notes


def slow_rank(device: torch.device, ranks: Ranks) -> int | None:
    """The first rank whose device has no bfloat16 instructions, if any. All ranks compute in the same precision."""
    first = int(ranks.min(torch.tensor(ranks.rank if devices.bfloat16_is_slow(device) else ranks.count)))
    return None if first == ranks.count else first


def _own_images(args: argparse.Namespace, given: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The setting `data`, if --data names the user's own images."""
    if args.data is None:
        return {}
    path = expanded_path(args.data, "--data")
    dataset = given.get("dataset", changes.get("dataset"))
    if dataset is None and args.recipe is not None and "data" in load_recipe(args.recipe).written.get("train", {}):
        dataset = OWN
    own = dataset == OWN
    if dataset is None and args.recipe is None:
        kind = kind_of_images(path)
        if kind is None and not args.download:
            problem = "it has no class folders and no dataset" if path.exists() else "no such folder or file"
            raise FileNotFoundError(
                f"{line_name(path)}: {problem}: expected your own images ({LAYOUT}), an .npz file, or the folder of "
                f"{' or '.join(DATASETS)}, which --download fetches"
            )
        own = kind == "own"
    if own:
        refuse_flags({"--download": args.download}, "is only for a dataset, not for your own images")
    return {"data": str(path.absolute())} if own else {}


def _rule(data: Any, said: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The default settings for the user's own images, and a line that names them."""
    files = find_labelled_files(Path(str(data)))
    rule = chosen_schedule(files.training_count, said)
    return rule, [_told(f"{files.name}: {files.training_count:,} images of {len(files.classes)} classes; chosen", rule)]


def _told(start: str, rule: Mapping[str, Any]) -> str:
    return f"{start}: {', '.join(f'{name} {value}' for name, value in rule.items())}"


@memory_as_mistake(": give a smaller --batch-size, or another --device")
def evaluate_model(args: argparse.Namespace) -> int:
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
        print(f"{device} has no bfloat16 instructions: --precision float32 is faster on it", file=sys.stderr)
    split, images = _images(description, args, args.split)
    name = description.dataset if description.images is None else images_name(args.data)
    if args.recalibrate:
        if not any(isinstance(each, torch.nn.modules.batchnorm._BatchNorm) for each in model.modules()):
            raise ValueError(f"{description.name} has no batch normalisation: leave out --recalibrate")
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
