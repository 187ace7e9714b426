"""Holds the state of a training and does its steps: iterations, checks, points of the curve, checkpoints."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rskip.checkpoint import untrained_language_model
from rskip.connections.norms import at_least_float32
from rskip.language_modeling.data import TextData
from rskip.language_modeling.evaluation import text_loss
from rskip.language_modeling.model_file import model_config, write_language_model
from rskip.language_modeling.settings import TrainingSettings, learning_rate
from rskip.language_modeling.training.curve import CurvePoint
from rskip.machine.ranks import Ranks
from rskip.settings.kinds import Whole
from rskip.tasks.loop import Diverged, Observer, OutputsNotFinite, largest_value
from rskip.tasks.loop_folder import LoopCheckpoint, LoopFolder, check_same_training, write_curve
from rskip.tasks.loop_run import LoopRun


@dataclass(frozen=True, kw_only=True)
class TrainingCheckpoint(LoopCheckpoint):
    """A training's state after an iteration. The random numbers of an iteration depend on seed and iteration only.

    text: checksum of the data.
    loss, tokens, seconds: sums since the last point of the curve: loss of the training tokens, their number, and the
    time without evaluations.
    sessions: one entry per session: "from" (iteration), "device", "torch" (version), "seconds".
    """

    text: str
    loss: float
    tokens: Whole
    seconds: float
    curve: list[CurvePoint]
    sessions: list[dict[str, Any]]


class TrainingBatches:
    """Draws sequences of the training text at random offsets, which may overlap.

    `batch(iteration)` is a pure function of seed and iteration, so a resumed training needs no other state. It is the
    same on every device and for any number of ranks.

    :param tokens: the text, which is moved to `device` once. Shape: (N,).
    :param batch_size: sequences per batch, over all ranks.
    :raises ValueError: the text is too short.
    """

    def __init__(
        self, tokens: Tensor, *, batch_size: int, context: int, seed: int, device: torch.device, ranks: Ranks
    ) -> None:
        if len(tokens) <= context:
            raise ValueError(
                f"the training text has {len(tokens):,} tokens: expected more than the context, {context:,}; "
                "give a longer text or a smaller context"
            )
        self._tokens = tokens.to(device)
        self._offsets, self._batch_size, self._seed, self._ranks = len(tokens) - context, batch_size, seed, ranks
        self._window = torch.arange(context + 1, device=device)

    def batch(self, iteration: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets (B, T) of this rank's part of the batch."""
        generator = torch.Generator().manual_seed(iteration_seed(self._seed, iteration))
        offsets = torch.randint(self._offsets, (self._batch_size,), generator=generator)
        own = offsets[self._ranks.rank :: self._ranks.count].to(self._window.device)
        sequences = self._tokens[own[:, None] + self._window]
        return sequences[:, :-1], sequences[:, 1:]


def iteration_seed(seed: int, iteration: int, rank: int = 0) -> int:
    """A seed of 63 bits for the random numbers of an iteration, mixed as in SplitMix64."""
    z = seed * 0x9E3779B97F4A7C15 + iteration * 0xD1B54A32D192ED03 + rank * 0x8CB92BA72F3D8DD7
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z = ((z ^ ((z % 2**64) >> shift)) * factor) % 2**64
    return (z ^ (z >> 31)) >> 1


class TrainingRun(LoopRun[CurvePoint]):
    """The model, its optimiser, and all other state that changes during training; see `LoopRun`.

    :raises ValueError: the settings don't fit this text or these processes.
    """

    def __init__(
        self,
        settings: TrainingSettings,
        *,
        data: TextData,
        files: LoopFolder,
        seed: int,
        device: torch.device,
        ranks: Ranks,
        observer: Observer | None = None,
    ) -> None:
        if settings.batch_size < ranks.count:
            raise ValueError(f"batch_size is {settings.batch_size}: expected at least one sequence for each process")
        super().__init__(
            settings, files=files, seed=seed, device=device, device_name=device.type, ranks=ranks, observer=observer
        )
        self.settings, self.data, self.iterations = settings, data, settings.iterations
        self.batches = TrainingBatches(
            data.splits["train"],
            batch_size=settings.batch_size,
            context=settings.context,
            seed=seed,
            device=device,
            ranks=ranks,
        )
        torch.manual_seed(seed)
        self._config = model_config(settings, len(data.tokens.dictionary))
        self.model = untrained_language_model(self._config).to(device).train()
        self._trained = self._distributed(self.model)
        self.optimiser = torch.optim.AdamW(
            parameter_groups(self.model, settings),
            lr=settings.lr,
            betas=(settings.beta1, settings.beta2),
            fused=True,
        )
        self._loss = torch.zeros((), dtype=torch.float64, device=device)  # of this rank, since the last point
        self._tokens = 0  # of all ranks, since then
        self._begin_session()

    @property
    def _identity(self) -> dict[str, Any]:
        """What a resumed training must have in common with its checkpoint."""
        text = self.data.described["files_sha256"]
        return {**self.settings.to_dict(), "seed": self.seed, "processes": self.ranks.count, "text_sha256": text}

    def learning_rate(self, iteration: int) -> float:
        return learning_rate(self.settings, iteration)

    def restore(self, checkpoint: TrainingCheckpoint) -> None:
        """Restores the training's state from an earlier session's checkpoint.

        :raises ValueError: the checkpoint doesn't belong to this training.
        """
        of_run = {"seed": checkpoint.seed, "processes": checkpoint.processes, "text_sha256": checkpoint.text}
        check_same_training(self.files.checkpoint, {**checkpoint.settings, **of_run}, self._identity)
        self._restore(checkpoint, sessions=checkpoint.sessions, point_seconds=checkpoint.seconds)
        if self.ranks.first:
            self._loss.fill_(checkpoint.loss)
        self._tokens = checkpoint.tokens

    def begin_files(self) -> None:
        """Writes run.json and the curve so far, in the first rank only."""
        if self.ranks.first:
            self._write_settings(text=self.data.described)

    @property
    def name(self) -> str:
        """The name of the model and the text."""
        settings = self.settings
        return f"{settings.layers} layers, {settings.features} features, {settings.connection}, {self.data.name}"

    @property
    def point_due(self) -> bool:
        """Whether the curve gets a point now."""
        return self._tokens > 0 and (self.finished or self.iteration % self.settings.evaluate_every == 0)

    def _iterate(self) -> None:
        inputs, targets = self.batches.batch(self.iteration)
        if self._observer is not None:
            self._observer(
                self.iteration + 1,
                self.model,
                lambda model: self._sum_of_losses(model, inputs, targets),
                count=targets.numel(),
            )
        # set for each iteration, so that a resumed training draws the same dropout
        torch.manual_seed(iteration_seed(self.seed, self.iteration, 1 + self.ranks.rank))
        count = self.settings.batch_size * self.settings.context
        loss = self._sum_of_losses(self._trained, inputs, targets)
        self._descend(loss, count)
        self._loss += loss.detach()
        self._tokens += count

    def _out_of_memory(self) -> ValueError:
        return ValueError(
            f"not enough memory for {self.settings.batch_size:,} sequences of {self.settings.context:,} tokens: give a "
            f"smaller batch_size or context; {self._kept}"
        )

    def _sum_of_losses(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        bfloat16 = self.settings.precision == "bfloat16"
        with torch.autocast(self.device.type, torch.bfloat16, enabled=bfloat16):
            logits = model(inputs)
        return F.cross_entropy(at_least_float32(logits).flatten(0, 1), targets.flatten(), reduction="sum")

    def check(self) -> None:
        """:raises Diverged: a loss since the last point, or a weight, is not finite."""
        loss, largest = torch.stack([self.ranks.sum(self._loss), largest_value(self.model).double()]).tolist()
        with self.ranks.together():
            if not math.isfinite(loss):
                raise self._diverged("the loss")
            if not math.isfinite(largest):
                raise self._diverged("a weight")

    def _diverged(self, what: str) -> Diverged:
        """The error, which suggests what to try."""
        lr, connection = learning_rate(self.settings, max(0, self.iteration - 1)), self.settings.connection
        return Diverged(
            f"{what} is not finite after {self.iteration:,} iterations (lr {lr:g}, connection {connection}): "
            f"try a lower lr, a longer warm-up or a lower clip_norm; {self._kept}"
        )

    def add_point(self) -> CurvePoint | None:
        """Adds a point to the curve, in the first rank only.

        :raises Diverged: the model's outputs for the validation text are not finite.
        """
        train_loss = float(self.ranks.sum(self._loss)) / self._tokens
        seconds = time.monotonic() - self._point_began
        point = None
        with self.ranks.together():
            if self.ranks.first:
                point = CurvePoint(
                    iteration=self.iteration,
                    lr=learning_rate(self.settings, self.iteration - 1),
                    train_loss=train_loss,
                    valid_loss=self._evaluate(),
                    tokens_per_second=self._tokens / seconds,
                    seconds=self.seconds,
                )
                self.points.append(point)
                write_curve(self.files.curve, self.points)
        self._loss.zero_()
        self._tokens = 0
        self._point_began = time.monotonic()
        return point

    def _evaluate(self) -> float:
        try:
            return text_loss(
                self.model,
                self.data.splits["valid"],
                context=self.settings.context,
                start=self.data.tokens.dictionary.eos_index,
                precision=self.settings.precision,
            ).loss
        except OutputsNotFinite as error:
            raise self._diverged("the validation loss") from error

    def _sums(self) -> float:
        return float(self.ranks.sum(self._loss))

    def _checkpoint(self, sums: float) -> TrainingCheckpoint:
        return TrainingCheckpoint(
            settings=self.settings.to_dict(),
            seed=self.seed,
            processes=self.ranks.count,
            text=self._identity["text_sha256"],
            iteration=self.iteration,
            model=self._weights(),
            optimiser=self._optimiser_state(),
            loss=sums,
            tokens=self._tokens,
            seconds=time.monotonic() - self._point_began,
            curve=list(self.points),
            sessions=self._sessions(),
        )

    def finish(self) -> None:
        """Writes the last iterate as a folder that `rskip.load` reads: model.safetensors, config.json, the tokens."""
        with self.ranks.together():
            if self.ranks.first:
                self.files.check_lock()
                write_language_model(
                    self.files.path, self._config, self._weights(), tokens=self.data.tokens, corpus=self.data.name
                )


def parameter_groups(model: nn.Module, settings: TrainingSettings) -> list[dict[str, Any]]:
    """The optimiser's groups: parameters of two or more dimensions decay, vectors and scalars don't."""
    parameters = list(model.parameters())
    return [
        {"params": [each for each in parameters if each.dim() >= 2], "weight_decay": settings.weight_decay},
        {"params": [each for each in parameters if each.dim() < 2], "weight_decay": 0.0},
    ]
