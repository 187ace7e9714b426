"""Everything that decides what a training of a PreAct-ResNet on CIFAR computes, beside its seed."""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any

from rskip.connections import build_connection, parse_connection
from rskip.settings.nearest import did_you_mean
from rskip.vision.preact_resnet import blocks_per_stage_of

PAPER_ITERATIONS = 64_000

CHOICES = {
    "dataset": ("cifar10", "cifar100"),
    "shortcut": ("zero_pad", "projection"),
    "block": ("basic", "bottleneck"),
    "schedule": ("step", "one_cycle"),
    "precision": ("float32", "bfloat16"),
}
_ONLY_FOR = {"step": ("warmup_iterations", "milestones"), "one_cycle": ("warmup_share", "final_lr")}


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """Settings of a training; the defaults are the papers' for CIFAR (He et al. 2016b with weight decay 2e-4).

    :param dataset: "cifar10" or "cifar100".
    :param depth: 6n+2 for blocks of two convolutions ("basic"), 9n+2 for those of three ("bottleneck").
    :param connection: a spec of `rskip.connections`, such as "2rskip+ln"; kept in its canonical form.
    :param shortcut: where a block changes the resolution: "zero_pad" (He's option A) or "projection".
    :param batch_size: images an iteration, over all processes together.
    :param iterations: how long; 64,000 where neither this nor `epochs` is given.
    :param epochs: the same in passes over the training images, in place of `iterations`.
    :param schedule: "step" or "one_cycle", see `rskip.vision.training.schedule`.
    :param lr: the learning rate; the highest one in "one_cycle".
    :param warmup_lr: the learning rate that the warm-up has ("step") or begins with ("one_cycle").
    :param warmup_iterations: length of the warm-up ("step").
    :param milestones: iterations from which on the learning rate is a tenth of the one before ("step").
    :param warmup_share: share of the iterations in which the learning rate rises ("one_cycle").
    :param final_lr: the learning rate that the last iteration falls towards ("one_cycle").
    :param weight_decay: of all parameters, those of normalisations and gates too, as He's.
    :param clip_norm: the highest norm of all gradients together; None: they are not clipped.
    :param precision: "bfloat16": the model computes in autocast, its parameters stay float32.
    :param channels_last: an image's values lie pixel by pixel in memory, not channel by channel; it changes speed and
        rounding alone.
    :param compile: the model is compiled by torch.compile.
    :param sync_batch_norm: batch normalisation takes its statistics over all processes' images.
    :param evaluate_every: epochs from one test error of the curve to the next; the last iterate always has one.
    :param save_every: iterations from one checkpoint to the next; each epoch's end has one too.
    :raises ValueError: a value of another type or range, or two that contradict, named in one line.
    """

    dataset: str = "cifar10"
    depth: int = 20
    connection: str = "1xskip"
    shortcut: str = "zero_pad"
    block: str = "basic"
    batch_size: int = 128
    iterations: int | None = None
    epochs: int | None = None
    schedule: str = "step"
    lr: float = 0.1
    warmup_lr: float = 0.01
    warmup_iterations: int = 400
    milestones: tuple[int, ...] = (32_000, 48_000)
    warmup_share: float = 0.2
    final_lr: float = 0.0
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 2e-4
    label_smoothing: float = 0.0
    clip_norm: float | None = None
    precision: str = "float32"
    channels_last: bool = True
    compile: bool = False
    sync_batch_norm: bool = False
    evaluate_every: int = 1
    save_every: int = 400

    def __post_init__(self) -> None:
        for field, kind in typing.get_type_hints(type(self)).items():
            object.__setattr__(self, field, _of_type(kind, field, getattr(self, field)))
        if self.iterations is not None and self.epochs is not None:
            raise ValueError(
                f"iterations={self.iterations} and epochs={self.epochs} are both given: give one of them, and null for "
                "one of a recipe"
            )
        if self.iterations is None and self.epochs is None:
            object.__setattr__(self, "iterations", PAPER_ITERATIONS)
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                near = did_you_mean(getattr(self, name), choices)
                raise ValueError(f"{name} is {getattr(self, name)!r}{near}; expected {' or '.join(choices)}")
        self._check_ranges()
        build_connection(self.connection, 1, feature_dim=1)
        object.__setattr__(self, "connection", str(parse_connection(self.connection)))

    def _check_ranges(self) -> None:
        blocks_per_stage_of(self.depth, self.block)
        for name in ("batch_size", "iterations", "epochs", "evaluate_every", "save_every"):
            _in_range(name, getattr(self, name), "of at least 1", lambda value: value >= 1)
        for name in ("warmup_iterations", "final_lr", "weight_decay"):
            _in_range(name, getattr(self, name), "of at least 0", lambda value: value >= 0)
        for name in ("lr", "warmup_lr", "clip_norm"):
            _in_range(name, getattr(self, name), "above 0", lambda value: value > 0)
        for name in ("momentum", "label_smoothing", "warmup_share"):
            _in_range(name, getattr(self, name), "from 0 to below 1", lambda value: 0 <= value < 1)
        if self.nesterov and not self.momentum:
            raise ValueError("nesterov needs a momentum above 0, not 0: set momentum, or leave nesterov out")
        if list(self.milestones) != sorted(set(self.milestones)) or min(self.milestones, default=1) < 1:
            raise ValueError(f"milestones are {list(self.milestones)}; expected rising iterations, as [32000, 48000]")
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        for schedule, names in _ONLY_FOR.items():
            for name in names if schedule != self.schedule else ():
                if getattr(self, name) != defaults[name]:
                    raise ValueError(f"{name} belongs to schedule {schedule} and this is {self.schedule}: leave it out")

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> TrainingSettings:
        """The settings under these names; what is missing has its default.

        :raises ValueError: an unknown key, with the nearest known one, or a wrong value, with its key.
        """
        known = [field.name for field in dataclasses.fields(cls)]
        for key in values:
            if key not in known:
                hint = did_you_mean(str(key), known) or f"; known settings: {', '.join(known)}"
                raise ValueError(f"unknown setting {key!r}{hint}")
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """All settings as plain JSON values, from which `from_mapping` makes the same again."""
        return {**dataclasses.asdict(self), "milestones": list(self.milestones)}

    def in_iterations(self, batches_per_epoch: int) -> TrainingSettings:
        """The same settings with `iterations` in place of `epochs`."""
        if self.epochs is None:
            return self
        return dataclasses.replace(self, epochs=None, iterations=self.epochs * batches_per_epoch)


def _of_type(kind: Any, name: str, value: Any) -> Any:
    """The value as `kind`, a field's annotation, has it: whole numbers as float, lists as tuple where those are due."""
    kinds = typing.get_args(kind) if typing.get_origin(kind) is not tuple else (tuple,)
    kinds = kinds or (kind,)
    if value is None and NoneType in kinds:
        return None
    if float in kinds and type(value) in (int, float) and math.isfinite(value):
        return float(value)
    if tuple in kinds and isinstance(value, (list, tuple)) and all(type(each) is int for each in value):
        return tuple(value)
    if type(value) in kinds and type(value) is not float:
        return value
    words = {int: "a whole number", float: "a finite number", bool: "true or false", str: "a name"}
    expected = " or ".join(words.get(each, "a list of whole numbers") for each in kinds if each is not NoneType)
    raise ValueError(f"{name} is {value!r}; expected {expected}")


def _in_range(name: str, value: Any, expected: str, holds: Callable[[Any], bool]) -> None:
    if value is not None and not holds(value):
        raise ValueError(f"{name} is {value!r}; expected a number {expected}")
