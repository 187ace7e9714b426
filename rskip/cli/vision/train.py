"""Train one model.

The settings come from a recipe of kind vision, from options, or from both; options override the recipe. The defaults
are the papers' settings (64,000 iterations of 128 images). For your own images (--data), the command chooses the
defaults by the number of images (docs/vision.md) and prints them.

To resume from the last checkpoint in --output, repeat the command. SIGTERM and Ctrl-C save and stop. Exit status: 0 if
the training is complete, 143 or 130 if a signal stopped it, 2 for a mistake in the arguments, 8 if the training
diverged (a loss or weight is infinite or NaN).
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rskip.cli._training import add_training_arguments, changes_of_set, probe_of
from rskip.cli.vision._arguments import PRECISIONS, add_data_arguments, out_of_memory_as_mistake
from rskip.vision.datasets import DATASETS
from rskip.vision.settings import OWN

if TYPE_CHECKING:
    import torch

    from rskip.machine.ranks import Ranks
    from rskip.vision.training import TrainingSettings

EXAMPLES = """examples:
  rskip vision train cifar10_fast/preact20_1xskip --seed 2 --output runs/baseline-2 --download
  rskip vision train --depth 20 --connection sas:alpha_bias=3,beta_bias=-3 --output runs/sas20 --data ~/data
  rskip vision train --connection 2rskip+ln --epochs 30 --schedule one_cycle --lr 0.2 --nesterov --output runs/short
  rskip vision train --data photos --connection 2rskip+ln --output runs/photos
  rskip vision train --data photos --model resnet18 --size 128 --connection 2rskip+ln --output runs/photos18

on several GPUs of this machine (on a CPU, leave out --sync-batch-norm); the batch size is that of all GPUs together:
  torchrun --standalone --nproc-per-node 2 -m rskip vision train RECIPE --sync-batch-norm --output runs/two"""

# the settings that have flags; all have --set
MODEL = ("dataset", "model", "size", "depth", "connection", "shortcut", "shortcut_input", "block")
SCHEDULE = (
    "iterations", "epochs", "batch_size", "schedule", "lr", "warmup_lr", "momentum", "nesterov", "weight_decay",
    "decay", "label_smoothing", "flip", "clip_norm",
)  # fmt: skip
MACHINE = ("channels_last", "compile", "sync_batch_norm", "evaluate_every", "save_every")
BEST_PRECISION = "bfloat16"  # where the device has instructions for it


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from rskip.cli._options import add_options
    from rskip.vision.settings import TrainingSettings

    parser.epilog = EXAMPLES
    parser.add_argument(
        "recipe", nargs="?", metavar="RECIPE", help="recipe of kind vision: RECIPE/VARIANT, or the path of a file"
    )
    change = "warmup_iterations=0 milestones=[8000,12000]"
    add_training_arguments(parser, change=change, without_probe="the recipe's probe")
    add_data_arguments(parser)
    parser.add_argument("--tensorboard", action="store_true", help="also write the curve for TensorBoard, in --output")
    add_options(parser.add_argument_group("model"), TrainingSettings, only=MODEL)
    add_options(parser.add_argument_group("training"), TrainingSettings, only=SCHEDULE)
    machine = parser.add_argument_group("machine")
    add_options(machine, TrainingSettings, only=MACHINE)
    machine.add_argument(
        "--precision", choices=PRECISIONS, default="auto",
        help="number format of the model. auto: that of the run in --output, otherwise of the recipe, otherwise "
        "bfloat16, or float32 on a CPU without bfloat16 instructions (default: %(default)s)",
    )  # fmt: skip


@out_of_memory_as_mistake()
def run(args: argparse.Namespace) -> int:
    """Trains, or resumes a training."""
    from rskip.files.folder_lock import FolderLock
    from rskip.machine.device import choose_device
    from rskip.machine.ranks import Ranks
    from rskip.machine.workers import end_with_parent
    from rskip.settings.user_dir import suggested_command
    from rskip.tasks.loop import Diverged, Interrupted, process_group
    from rskip.tasks.process import DIVERGED
    from rskip.vision.evaluation import OutputsNotFinite
    from rskip.vision.training import train
    from rskip.vision.training.choices import slow_rank

    warnings.filterwarnings("ignore", module=r"PIL\.")  # odd metadata; images that are too large are refused
    if FolderLock.inherited():
        end_with_parent()  # that may be torchrun
    ranks = Ranks.from_environment()
    with process_group(ranks, args.device):
        with ranks.together():
            device = choose_device(args.device, ranks)
        slow = slow_rank(device, ranks)
        with ranks.together():
            settings, notes = training_settings(args, device, ranks, slow=slow)
            observer = probe_of(args, settings.connection, ranks)
        try:
            result = train(
                settings,
                folder=args.output,
                data=args.data,
                download=args.download,
                seed=args.seed,
                device=args.device,
                tensorboard=args.tensorboard,
                observer=observer,
                notes=notes,
            )
        except Interrupted as error:
            print(f"rskip vision train: {error}", file=sys.stderr)
            return error.status
        except (Diverged, OutputsNotFinite) as error:
            print(f"rskip vision train: error: {error}", file=sys.stderr)
            return DIVERGED
    if ranks.first:
        data = args.data if settings.data is None else settings.data
        given = [] if data is None else ["--data", str(data)]
        evaluation = suggested_command("rskip", "vision", "evaluate", str(args.output), *given)
        print(
            f"{result.model_file}: {result.name}: {result.evaluated_on} error {result.test_error:.2f} % in "
            f"{settings.precision} after {result.iteration:,} iterations ({result.seconds / 60:,.1f} min)\n"
            f"error per class: {evaluation}"
        )
    return 0


def training_settings(
    args: argparse.Namespace, device: torch.device, ranks: Ranks, *, slow: int | None
) -> tuple[TrainingSettings, list[str]]:
    """The settings of the recipe or of the papers with the given changes, and notes on the chosen ones.

    If --probe-every is not given, it is taken from the recipe.

    :param slow: see `slow_rank`.
    """
    from rskip.cli._options import given_options
    from rskip.experiments.recipe import load_recipe
    from rskip.settings.check import convert
    from rskip.vision.training import TrainingSettings
    from rskip.vision.training.choices import choose

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
        if (data := given.get("data", changes.get("data"))) is not None:
            rule, notes = _rule(data, {**changes, **given})
        settings = convert({"precision": BEST_PRECISION, **rule, **changes, **given}, TrainingSettings)
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
    settings.check_used(given)  # not those of --set: `rskip run` gives all settings there
    if args.precision != "auto":
        settings = replace(settings, precision=args.precision)
        said.add("precision")
    settings, more = choose(settings, said=said, folder=args.output, device=device, ranks=ranks, slow=slow)
    return settings, [*notes, *more]


def _own_images(args: argparse.Namespace, given: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The setting `data`, if --data names the user's own images."""
    from rskip.cli._options import refuse_flags
    from rskip.files.cache import expanded_path
    from rskip.files.names import line_name
    from rskip.vision.data.labelled_files import LAYOUT, kind_of_images

    if args.data is None:
        return {}
    path = expanded_path(args.data, "--data")
    dataset = given.get("dataset", changes.get("dataset"))
    own = dataset == OWN
    if own:
        refuse_flags({"--download": args.download}, "is only for a dataset, not for your own images")
    if dataset is None and args.recipe is None and not args.download:
        kind = kind_of_images(path)
        if kind is None:
            problem = "it has no class folders and no dataset" if path.exists() else "no such folder or file"
            raise FileNotFoundError(
                f"{line_name(path)}: {problem}: expected your own images ({LAYOUT}), an .npz file, or the folder of "
                f"{' or '.join(DATASETS)}, which --download fetches"
            )
        own = kind == "own"
    return {"data": str(path.absolute())} if own else {}


def _rule(data: Any, said: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The default settings for the user's own images, and a line that names them."""
    from rskip.vision.data.labelled_files import find_labelled_files
    from rskip.vision.training.choices import own_schedule

    files = find_labelled_files(Path(str(data)))
    rule = own_schedule(files.training_count, said)
    told = ", ".join(f"{name} {value}" for name, value in rule.items())
    return rule, [f"{files.name}: {files.training_count:,} images of {len(files.classes)} classes; chosen: {told}"]
