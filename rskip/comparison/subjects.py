"""What is compared: a model whose connection can be chosen, the data, and how it is trained."""

from __future__ import annotations

import hashlib
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rskip.comparison.batches import Data, examples
from rskip.connections import parse_connection
from rskip.language_modeling.data import TextData
from rskip.language_modeling.settings import TrainingSettings, learning_rate
from rskip.language_modeling.training import adamw, text_training
from rskip.nn import adapt
from rskip.settings.errors import SettingError
from rskip.settings.kinds import Count
from rskip.tasks.training import OutputsNotFinite, Start, TrainingRun

OWN = "own"  # the model as it is
EVALUATIONS = 5  # per run
_WARMUP = 100  # updates, in long runs
Loss = Callable[[nn.Module, Any], Tensor]


def as_written(connection: str) -> str:
    """The name of a connection in plans: its spec as rskip writes it, or `OWN`."""
    return OWN if connection == OWN else str(parse_connection(connection))


@dataclass(frozen=True)
class Job:
    """One run: a connection, a learning rate, a number of updates and a seed."""

    connection: str
    rate: float
    updates: int
    seed: int


def schedule(job: Job) -> dict[str, Any]:
    """A warm-up of a twentieth of the updates, at most 100, then a cosine to a tenth of the rate."""
    every = math.ceil(job.updates / EVALUATIONS)
    warmup = min(_WARMUP, job.updates // 20)
    return {
        "lr": job.rate, "final_lr": job.rate / 10, "iterations": job.updates, "warmup_iterations": warmup,
        "evaluate_every": every, "save_every": max(every, _WARMUP),
    }  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ShapedModel:
    """A language model of `rskip lm train`: gpt2 or llama, at any size."""

    data: TextData
    size: TrainingSettings
    baseline: str = "prenorm+ln"
    rates: tuple[float, ...] = (1e-3, 3e-3)
    recommended: tuple[str, ...] = ("residual_dual", "mhc", "hyper", "attnres", "2rskip+ln", "1xskip+ln")

    @property
    def name(self) -> str:
        return f"{self.size.shape}, {self.size.layers} layers, {self.size.features} features, {self.data.name}"

    @property
    def identity(self) -> dict[str, Any]:
        names = ("shape", "layers", "heads", "features", "context", "batch_size", "precision")
        return {name: getattr(self.size, name) for name in names} | {"text_sha256": self.data.described["files_sha256"]}

    def settings(self, job: Job) -> TrainingSettings:
        return replace(self.size, connection=job.connection, **schedule(job))

    def begin(self, start: Start) -> TrainingRun[Any]:
        return text_training(start, self.data)


@dataclass(frozen=True, kw_only=True)
class AdaptedSettings:
    """Settings of the training of a model that `adapt` changes: AdamW, with a cosine."""

    model: str
    connection: str
    lr: float
    final_lr: float
    iterations: int
    warmup_iterations: int
    evaluate_every: int
    save_every: int
    beta1: float = 0.9
    beta2: float = 0.99
    weight_decay: float = 0.1
    clip_norm: float = 1.0
    precision: str = "float32"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Point:
    """A point of the learning curve; losses are means over examples. See `language_modeling.training.CurvePoint`."""

    iteration: Count
    lr: float
    train_loss: float
    valid_loss: float
    examples_per_second: float
    seconds: float


@dataclass(frozen=True, kw_only=True)
class AdaptedModel:
    """Any model, whose connection `rskip.adapt` replaces.

    :param build: returns the model, with random weights.
    :param loss: `loss(model, batch)` is the mean loss of a batch.
    :param blocks: see `rskip.adapt`.
    """

    name: str
    build: Callable[[], nn.Module]
    data: Data
    loss: Loss
    blocks: str | None = None
    precision: str = "float32"
    rates: tuple[float, ...] = (3e-4, 1e-3)
    baseline: str = OWN
    recommended: tuple[str, ...] = ("mhc", "hyper", "attnres", "residual_dual", "2rskip+ln", "frac")

    @cached_property
    def identity(self) -> dict[str, Any]:
        shapes = [(name, *each.shape) for name, each in self.build().named_parameters()]
        return {
            "model": self.name, "blocks": self.blocks, "precision": self.precision,
            "loss": f"{self.loss.__module__}.{getattr(self.loss, '__qualname__', type(self.loss).__name__)}",
            "parameters_sha256": hashlib.sha256(repr(shapes).encode()).hexdigest(), **self.data.identity,
        }  # fmt: skip

    def settings(self, job: Job) -> AdaptedSettings:
        return AdaptedSettings(
            model=self.name, connection=job.connection, precision=self.precision, **schedule(job)
        )  # fmt: skip

    def model(self, connection: str) -> nn.Module:
        """A model with this connection.

        :raises SettingError: `adapt` refuses it.
        """
        model = self.build()
        if connection != OWN:
            batch, _ = next(self.data.held_out(torch.device("cpu")))
            known = hasattr(model, "main_input_name") or hasattr(model, "pretrained_cfg")  # adapt knows their inputs
            example = None if known else _inputs(model, self.loss, batch)
            adapt(model, connection, blocks=self.blocks, example=example)
        return model

    def begin(self, start: Start) -> TrainingRun[Any]:
        settings: AdaptedSettings = start.settings
        draw = self.data.draw(start.seed, start.device, start.ranks)
        torch.manual_seed(start.seed)
        scored = _Scored(self.model(settings.connection), self.loss).to(start.device).train()

        def batch(iteration: int) -> tuple[Any, Any, int]:
            content, own, count = draw(iteration)
            return content, torch.tensor(own, device=start.device), count

        def point(run: TrainingRun[Point], means: list[float], rate: float) -> Point:
            return Point(
                iteration=run.iteration, lr=run.lr, train_loss=means[0], valid_loss=held_out_loss(scored, self.data,
                start.device), examples_per_second=rate, seconds=run.seconds,
            )  # fmt: skip

        def line(point: Point) -> str:
            losses = f"loss: training {point.train_loss:.4f}, held out {point.valid_loss:.4f}"
            rate = f"{point.examples_per_second:,.0f} {self.data.unit}/s"
            return f"iteration {point.iteration:,}/{settings.iterations:,}   lr {point.lr:.4g}   {losses}   {rate}"

        return TrainingRun(
            start=start,
            model=scored,
            optimiser=adamw(scored.model, settings),
            iterations=settings.iterations,
            batch=batch,
            losses=lambda mean, count: (mean * count,),
            learning_rate=partial(learning_rate, settings),
            point_every=settings.evaluate_every,
            point_type=Point,
            point=point,
            line=line,
            data=self.data.identity,
            config={},
            about={},
            name=f"{self.name}, {settings.connection}",
            evaluated_on="held-out",
        )


# What is compared. `name` is for headings, `baseline` what the others are compared with, `rates` and `recommended` the
# default learning rates and connections; `identity` is what determines a run besides its job, as plain values.
Subject = ShapedModel | AdaptedModel


class _Scored(nn.Module):
    """A model that returns its mean loss over a batch."""

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, batch: Any) -> Tensor:
        loss = self.loss(self.model, batch)
        if not isinstance(loss, Tensor) or loss.dim() or not loss.is_floating_point():
            shown = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
            raise SettingError("loss", f"returns {shown}", expected="the mean loss, a tensor without dimensions")
        return loss


@torch.no_grad()  # not inference_mode: what a model keeps, such as a cache, is used in training too
def held_out_loss(scored: nn.Module, data: Data, device: torch.device) -> float:
    """The mean loss over the held-out examples.

    :raises OutputsNotFinite: it is not finite.
    """
    scored.eval()
    try:
        losses = [(float(scored(batch)) * count, count) for batch, count in data.held_out(device)]
    finally:
        scored.train()
    found = sum(loss for loss, _ in losses) / sum(count for _, count in losses)
    if not math.isfinite(found):
        raise OutputsNotFinite
    return found


class _Called(Exception):
    """Stops a loss at the model's first call, with its arguments."""


def _inputs(model: nn.Module, loss: Loss, batch: Any) -> Any:
    """What a loss gives the model, of the batch's first two examples; None if it doesn't call the model itself."""
    count = examples(batch)

    def stop(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        raise _Called(args, kwargs)

    def first(each: Any) -> Any:
        return each[:2] if isinstance(each, Tensor) and each.dim() and len(each) == count else each

    with model.register_forward_pre_hook(stop, with_kwargs=True):
        try:
            loss(model, batch)
        except _Called as call:
            args, kwargs = call.args
            if not kwargs:
                return tuple(map(first, args))
            named = dict(zip(inspect.signature(model.forward).parameters, args, strict=False)) | kwargs
            return {name: first(each) for name, each in named.items()}
    return None


def next_token_loss(model: nn.Module, batch: Any) -> Tensor:
    """The cross-entropy of a Hugging Face language model. Targets are shifted already; -100 has no loss."""
    logits = model(input_ids=batch[0]).logits
    return F.cross_entropy(logits.flatten(0, 1), batch[1].flatten())


def model_loss(model: nn.Module, batch: Any) -> Tensor:
    """The loss that a model computes itself, else the cross-entropy of its outputs.

    A model computes it if its `forward` has a parameter `targets`, as in nanoGPT, or if a batch is a mapping of its
    arguments. Then it returns the loss, an object with a `loss`, or a tuple that contains it. Otherwise it returns
    logits (B, classes) or (B, T, tokens).

    :raises SettingError: it returns something else.
    """
    if isinstance(batch, Mapping):
        return _found_loss(model(**batch))
    if not isinstance(batch, tuple) or len(batch) != 2:
        expected = "a pair (inputs, targets), or a mapping of the model's arguments"
        problem = f"has a batch that is a {type(batch).__name__}"
        raise SettingError("data", problem, expected=expected, advice="or give a loss function")
    if "targets" in inspect.signature(model.forward).parameters:
        return _found_loss(model(batch[0], targets=batch[1]))
    logits = model(batch[0])
    logits = logits[0] if isinstance(logits, tuple) else getattr(logits, "logits", logits)
    if not isinstance(logits, Tensor) or logits.shape[:-1] != batch[1].shape:
        shown = f"a tensor of shape {tuple(logits.shape)}" if isinstance(logits, Tensor) else type(logits).__name__
        expected = f"logits of shape {(*batch[1].shape, 'K')}".replace("'", "")
        raise SettingError("model", f"returns {shown}", expected=expected, advice="or give a loss function")
    return F.cross_entropy(logits.flatten(0, -2), batch[1].flatten())


def _found_loss(outputs: Any) -> Tensor:
    parts = outputs if isinstance(outputs, tuple) else (outputs,)
    for each in (getattr(outputs, "loss", None), *parts):
        if isinstance(each, Tensor) and each.dim() == 0 and each.is_floating_point():
            return each
    expected, advice = "its loss, an object with a `loss`, or a tuple that contains it", "or give a loss function"
    raise SettingError("model", f"returns a {type(outputs).__name__}", expected=expected, advice=advice)
