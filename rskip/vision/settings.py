"""Defines all settings that determine the training of an image model, apart from seed and images."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

from rskip.files.names import shown_name
from rskip.settings.check import check, to_plain
from rskip.settings.errors import SettingError
from rskip.settings.kinds import Count
from rskip.vision.datasets import DATASETS

PAPER_ITERATIONS = 64_000
LAYERS = {"basic": 6, "bottleneck": 9}  # convolutions in three blocks, one of each stage
_DEEPEST = 2000  # He et al. (2016b) have 1001 layers

Precision = Literal["float32", "bfloat16"]
Positive = Annotated[float, Meta(gt=0)]
Share = Annotated[float, Meta(ge=0, lt=1)]
ModelName = Literal[
    "preact_resnet", "vit", "resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "resnext50_32x4d",
    "resnext101_32x8d", "resnext101_64x4d", "wide_resnet50_2", "wide_resnet101_2",
]  # fmt: skip
OWN = "images"  # the `dataset` of a training on your own images
if TYPE_CHECKING:
    DatasetName = str
else:
    DatasetName = Literal[(*DATASETS, OWN)]
MIN_TORCHVISION_SIZE = 64  # pixels; the models divide it by 32, and batch normalisation needs several values
_LATER = (
    "shortcut_input", "decay", "data", "model", "size", "flip", "features", "heads", "patch", "optimiser",
)  # fmt: skip
MOST_EPOCHS, LEAST_EPOCHS, FEW_IMAGES = 300, 30, 2_500  # of trainings on your own images
_ONLY_FOR = {
    ("dataset", (OWN,)): ("data", "size"),
    ("model", ("preact_resnet", "vit")): ("depth",),
    ("model", ("preact_resnet",)): ("shortcut", "shortcut_input", "block"),
    ("model", ("vit",)): ("features", "heads", "patch"),
    ("optimiser", ("sgd",)): ("momentum", "nesterov"),
    ("shortcut", ("zero_pad",)): ("shortcut_input",),
    ("schedule", ("step",)): ("warmup_iterations", "milestones"),
    ("schedule", ("one_cycle",)): ("warmup_share", "final_lr"),
}


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """Settings of a training. The defaults are the papers' for CIFAR (He et al. 2016b with weight decay 2e-4).

    If `data` names your own images, `dataset` is "images". They need `epochs` or `iterations`, since the default length
    is for CIFAR.

    Each field's description is also the help of its flag.

    :raises SettingError: a value has a wrong type or range, or two values contradict each other.
    """

    dataset: Annotated[DatasetName, Meta(description="dataset; images: your own, given by data")] = "cifar10"
    data: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(description="your own images: a folder of class folders, or an .npz file"),
    ] = None
    model: Annotated[
        ModelName,
        Meta(
            description="PreAct-ResNet of `depth` layers, vision transformer of `depth` blocks, or for your own images "
            "torchvision's ResNets"
        ),
    ] = "preact_resnet"
    size: Annotated[
        Annotated[int, Meta(ge=16, le=1024)] | None,
        Meta(description="pixels per side of the model's input, for your own images (default: chosen by their sizes)"),
    ] = None
    depth: Annotated[
        Count, Meta(description="layers: 6n+2, such as 20, 56, 110; with bottleneck blocks 9n+2; of a vit, its blocks")
    ] = 20
    connection: Annotated[
        str,
        Meta(
            description="connection of each block, such as 2rskip+ln; saved in its canonical form",
            extra={"metavar": "SPEC"},
        ),
    ] = "1xskip"
    shortcut: Annotated[
        Literal["zero_pad", "projection"],
        Meta(description="shortcut of blocks that change the resolution; zero_pad: He's option A, without parameters"),
    ] = "zero_pad"
    shortcut_input: Annotated[
        Literal["raw", "activated"],
        Meta(description="input of a zero-padded shortcut: the block's input, or the output of its first BN and ReLU"),
    ] = "raw"
    block: Annotated[
        Literal["basic", "bottleneck"], Meta(description="two 3×3 convolutions, or a bottleneck of three")
    ] = "basic"
    features: Annotated[Count, Meta(description="features of a vit, a multiple of its heads")] = 192
    heads: Annotated[Count, Meta(description="attention heads of a vit")] = 3
    patch: Annotated[Count, Meta(description="pixels per side of a vit's patch, a divisor of the images' size")] = 4
    batch_size: Annotated[Count, Meta(description="images per iteration, over all processes")] = 128
    iterations: Annotated[
        Count | None, Meta(description=f"length of the training (default: {PAPER_ITERATIONS}, without epochs)")
    ] = None
    epochs: Annotated[
        Count | None, Meta(description="length in passes over the training images, instead of iterations")
    ] = None
    schedule: Annotated[
        Literal["step", "one_cycle"],
        Meta(description="learning rate schedule: step (the papers'), or one_cycle (one rise and fall)"),
    ] = "step"
    lr: Annotated[Positive, Meta(description="learning rate; its maximum with one_cycle")] = 0.1
    warmup_lr: Annotated[
        Positive, Meta(description="learning rate during the warm-up (step), or at the start (one_cycle)")
    ] = 0.01
    warmup_iterations: Annotated[int, Meta(ge=0, description="length of the warm-up (step)")] = 400
    milestones: Annotated[
        tuple[int, ...],
        Meta(
            description="iterations at which the learning rate is divided by ten (step)",
            extra={"expected": "a list of whole numbers"},
        ),
    ] = (32_000, 48_000)
    warmup_share: Annotated[
        Share, Meta(description="share of the iterations in which the learning rate rises (one_cycle)")
    ] = 0.2
    final_lr: Annotated[
        Annotated[float, Meta(ge=0)], Meta(description="learning rate that the schedule falls to (one_cycle)")
    ] = 0.0
    optimiser: Annotated[
        Literal["sgd", "adamw"], Meta(description="SGD with momentum, or AdamW (betas 0.9 and 0.999), for a vit")
    ] = "sgd"
    momentum: Annotated[Share, Meta(description="momentum of SGD")] = 0.9
    nesterov: Annotated[bool, Meta(description="use Nesterov momentum")] = False
    weight_decay: Annotated[
        Annotated[float, Meta(ge=0)], Meta(description="weight decay of the parameters that decay selects")
    ] = 2e-4
    decay: Annotated[
        Literal["all", "weights"],
        Meta(description="with weight decay: all parameters, or weights of layers outside connections"),
    ] = "all"
    label_smoothing: Annotated[Share, Meta(description="label smoothing of the training loss")] = 0.0
    flip: Annotated[bool, Meta(description="mirror half of the training images, left to right")] = True
    clip_norm: Annotated[
        Positive | None, Meta(description="maximum norm of the whole gradient (default: no clipping)")
    ] = None
    precision: Annotated[Precision, Meta(description="bfloat16: autocast, parameters stay float32")] = "float32"
    channels_last: Annotated[bool, Meta(description="channels-last memory format; changes only speed and rounding")] = (
        True
    )
    compile: Annotated[bool, Meta(description="compile the model with torch.compile, which takes minutes")] = False
    sync_batch_norm: Annotated[bool, Meta(description="compute batch statistics over all GPUs")] = False
    evaluate_every: Annotated[
        Count, Meta(description="epochs between two evaluations for the curve; the last iteration is evaluated too")
    ] = 1
    save_every: Annotated[
        Count, Meta(description="iterations between two checkpoints; every epoch's end is saved too")
    ] = 400

    def __post_init__(self) -> None:
        from rskip.connections import check_connection, parse_connection  # imports PyTorch
        from rskip.formulas import works_on

        check(self)
        fields = type(self).__dataclass_fields__
        if self.data is not None and self.dataset == fields["dataset"].default:
            object.__setattr__(self, "dataset", OWN)
        self.check_used(name for name in fields if getattr(self, name) != fields[name].default)
        if self.dataset == OWN:
            if self.data is None:
                raise SettingError("data", "is missing", expected="your own images: a folder or an .npz file")
            if self.iterations is None and self.epochs is None:
                raise SettingError("epochs", "is missing", expected="epochs or iterations, for your own images")
            if self.of_torchvision and self.size is not None and self.size < MIN_TORCHVISION_SIZE:
                raise SettingError.of_value("size", self.size, f"at least {MIN_TORCHVISION_SIZE} for {self.model}")
        elif self.of_torchvision:
            problem = f"is {self.model}, which is for your own images, but dataset is {self.dataset}"
            raise SettingError("model", problem, expected="preact_resnet or vit")
        if self.iterations is not None and self.epochs is not None:
            problem = f"is {self.iterations} and epochs is {self.epochs}"
            raise SettingError("iterations", problem, expected="one of them; null unsets that of a recipe")
        if self.iterations is None and self.epochs is None:
            object.__setattr__(self, "iterations", PAPER_ITERATIONS)
        if self.model == "preact_resnet":
            blocks_per_stage_of(self.depth, self.block)
        if self.nesterov and not self.momentum:
            raise SettingError("nesterov", "needs a momentum above 0, not 0", advice="set momentum, or leave it out")
        if self.schedule == "one_cycle" and self.warmup_lr > self.lr:
            raise SettingError.of_value("warmup_lr", self.warmup_lr, f"at most lr, {self.lr:g}, from which it rises")
        if list(self.milestones) != sorted(set(self.milestones)) or min(self.milestones, default=1) < 1:
            raise SettingError.of_value("milestones", list(self.milestones), "rising numbers, such as [32000, 48000]")
        spec = parse_connection(self.connection)
        adapts = self.model == "vit" or (self.model == "preact_resnet" and not works_on(spec, 1))
        check_connection(spec, -1 if adapts else 1)
        object.__setattr__(self, "connection", str(spec))

    @property
    def of_torchvision(self) -> bool:
        """Whether the model is one of torchvision."""
        return self.model not in ("preact_resnet", "vit")

    def check_used(self, names: Iterable[str]) -> None:
        """:raises SettingError: one of these settings has no effect with the images, model, shortcut or schedule."""
        for name in names:
            for (setting, needed), dependent in _ONLY_FOR.items():
                if name in dependent and getattr(self, setting) not in needed:
                    problem = f"is for {setting} {' or '.join(needed)}, but {setting} is {getattr(self, setting)}"
                    raise SettingError(name, problem, advice="leave it out")

    def to_dict(self) -> dict[str, Any]:
        """The settings as plain JSON values, from which `rskip.settings.check.convert` makes equal settings.

        Settings in _LATER are omitted at their defaults, since older records and folders lack them.
        """
        fields = type(self).__dataclass_fields__
        plain = to_plain(self)
        return {name: plain[name] for name in plain if name not in _LATER or plain[name] != fields[name].default}

    def in_iterations(self, batches_per_epoch: int) -> TrainingSettings:
        """The same settings with `iterations` instead of `epochs`."""
        if self.epochs is None:
            return self
        return dataclasses.replace(self, epochs=None, iterations=self.epochs * batches_per_epoch)


def images_name(path: str | os.PathLike[str]) -> str:
    """The name of your own images: the folder's or the file's, without .npz."""
    whole = Path(os.path.abspath(path))
    return shown_name(whole.stem if whole.suffix.lower() == ".npz" else whole.name) or "images"


def blocks_per_stage_of(depth: int, block: str) -> int:
    """The number of blocks in each of the three stages of a PreAct-ResNet.

    :param block: "basic" or "bottleneck".
    :raises SettingError: the depth is not possible with such blocks.
    """
    layers = LAYERS[block]
    form = f"{layers}n+2 with {block} blocks"
    if depth > _DEEPEST:
        raise SettingError.of_value("depth", depth, f"at most {_DEEPEST}, {form}")
    blocks, rest = divmod(depth - 2, layers)
    if blocks < 1 or rest:
        near = f"nearest are {depth - rest} and {depth - rest + layers}" if blocks > 0 else f"smallest is {layers + 2}"
        raise SettingError.of_value("depth", depth, form, advice=f"the {near}")
    return blocks


def chosen_schedule(images: int, said: Mapping[str, Any]) -> dict[str, Any]:
    """The default settings of a training on your own images, or of a vision transformer on any.

    - Epochs: 30 √(50,000 / images), between 30 and 300.
    - Batches: 128 images, or 32 for fewer than FEW_IMAGES or a model of torchvision.
    - Learning rate (one_cycle): rises to 0.1 per 128 images of a batch, and falls to 0.
    - Nesterov momentum, weight decay 5e-4.
    - Of a vision transformer: 12 blocks, prenorm+ln, AdamW, 0.001 per 128 images, weight decay 0.05 of weights.

    :param images: number of training images, before validation images are split off.
    :param said: the user's settings, which are omitted. With another schedule than one_cycle, only length and batches
        are chosen.
    """
    model = said.get("model", "preact_resnet")
    small = images < FEW_IMAGES or model not in ("preact_resnet", "vit")
    rule: dict[str, Any] = {"depth": 12, "connection": "prenorm+ln"} if model == "vit" else {}
    rule["batch_size"] = 32 if small else 128
    if said.get("iterations") is None and said.get("epochs") is None:
        rule["epochs"] = min(MOST_EPOCHS, max(LEAST_EPOCHS, round(30 * math.sqrt(50_000 / max(1, images)))))
    if said.get("schedule", "one_cycle") == "one_cycle":
        adamw = said.get("optimiser", "adamw" if model == "vit" else "sgd") == "adamw"
        batch = said.get("batch_size", rule["batch_size"])
        lr = 0.001 if adamw else 0.1
        if isinstance(batch, int) and batch > 0:
            lr *= batch / 128
        peak = given if isinstance(given := said.get("lr"), (int, float)) else lr
        rule |= {"schedule": "one_cycle", "lr": lr, "warmup_lr": peak / 20}
        if adamw:
            rule |= {"optimiser": "adamw", "weight_decay": 0.05, "decay": "weights"}
        else:
            rule |= {"nesterov": True, "weight_decay": 5e-4}
    return {name: value for name, value in rule.items() if name not in said or said[name] is None}


def learning_rate(settings: TrainingSettings, iteration: int) -> float:
    """The learning rate of an iteration.

    step (He et al. 2016b, section 4): warmup_lr in the first `warmup_iterations`, then lr, divided by 10 at each
    milestone.
    one_cycle: linear from warmup_lr at iteration 0 to lr, over `warmup_share` of all iterations, then linear down to
    final_lr, which the iteration after the last one would have.

    :param settings: settings with `iterations`, not `epochs` (see `TrainingSettings.in_iterations`).
    :param iteration: counted from 0.
    """
    assert settings.iterations is not None
    if settings.schedule == "step":
        if iteration < settings.warmup_iterations:
            return settings.warmup_lr
        return settings.lr / 10 ** sum(iteration >= milestone for milestone in settings.milestones)
    peak = settings.warmup_share * settings.iterations
    if iteration < peak:
        return settings.warmup_lr + (settings.lr - settings.warmup_lr) * iteration / peak
    left = (settings.iterations - iteration) / (settings.iterations - peak)
    return settings.final_lr + (settings.lr - settings.final_lr) * left


class VisionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a vision run. `train` has the settings of `rskip vision train`. The last iterate is evaluated."""

    train: TrainingSettings

    def to_plain(self) -> dict[str, Any]:
        """All settings that determine the result, as plain JSON values."""
        return {"train": self.train.to_dict()}
