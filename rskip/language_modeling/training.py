"""Trains language models with the loop of `rskip.tasks.training`. B batch, T positions, V vocabulary."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rskip.checkpoint import untrained_language_model
from rskip.language_modeling.data import TextData
from rskip.language_modeling.evaluation import token_losses
from rskip.language_modeling.model_file import TASK, model_config
from rskip.language_modeling.settings import TrainingSettings, learning_rate
from rskip.machine.ranks import Ranks
from rskip.nn import no_weight_decay
from rskip.settings.kinds import Count
from rskip.tasks import training
from rskip.tasks.training import Start, TrainingRun, iteration_seed
from rskip.tasks.training_folder import read_points

__all__ = ["CurvePoint", "TrainingSettings", "read_curve", "train"]


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """A point of the learning curve.

    :param iteration: number of completed iterations.
    :param lr: learning rate of the last iteration.
    :param train_loss: mean loss per token of the training batches since the previous point. Losses are in nats.
    :param valid_loss: loss per token of the validation text.
    :param tokens_per_second: training speed since the previous point, without evaluations.
    :param seconds: duration of all sessions so far, including evaluations.
    """

    iteration: Count
    lr: float
    train_loss: float
    valid_loss: float
    tokens_per_second: float
    seconds: float


read_curve = partial(read_points, kind=CurvePoint)


def training_batches(
    tokens: Tensor, *, batch_size: int, context: int, seed: int, device: torch.device, ranks: Ranks
) -> Callable[[int], tuple[Tensor, Tensor, int]]:
    """Draws sequences of the training text at random offsets, which may overlap.

    The batch of an iteration depends only on seed and iteration, so a resumed training needs no other state. It is the
    same on every device and for any number of ranks.

    :param tokens: the text, which is moved to `device` once. Shape: (N,).
    :param batch_size: sequences per batch, over all ranks.
    :returns: a function of the iteration: inputs and targets (B, T) of this rank's part of the batch, and the number
        of tokens of all ranks.
    :raises ValueError: the text is too short.
    """
    if len(tokens) <= context:
        raise ValueError(
            f"the training text has {len(tokens):,} tokens: expected more than the context, {context:,}; "
            "give a longer text or a smaller context"
        )
    text, window = tokens.to(device), torch.arange(context + 1, device=device)

    def batch(iteration: int) -> tuple[Tensor, Tensor, int]:
        generator = torch.Generator().manual_seed(iteration_seed(seed, iteration))
        offsets = torch.randint(len(text) - context, (batch_size,), generator=generator)
        own = offsets[ranks.rank :: ranks.count].to(device)
        sequences = text[own[:, None] + window]
        return sequences[:, :-1], sequences[:, 1:], batch_size * context

    return batch


def train(
    settings: TrainingSettings, *, data: TextData, folder: Path, seed: int, **options: Any
) -> TrainingRun[CurvePoint]:
    """Trains to the end, from the start or from the folder's checkpoint.pt. `rskip.load` reads the folder afterwards.

    :param folder, seed, options: see `rskip.tasks.training.train`, which also takes device, tracker and observer.
    """
    build = partial(text_training, data=data)
    return training.train(build, settings, folder=folder, apart=data.path, seed=seed, **options)


def text_training(start: Start, data: TextData) -> TrainingRun[CurvePoint]:
    """The training run of a model, at its start.

    :raises ValueError: the settings don't fit this text or these processes.
    """
    settings: TrainingSettings = start.settings
    if settings.batch_size < start.ranks.count:
        raise ValueError(f"batch_size is {settings.batch_size}: expected at least one sequence for each process")
    context, unit = settings.context, data.tokens.unit
    batch = training_batches(
        data.splits["train"], batch_size=settings.batch_size, context=context, seed=start.seed, device=start.device,
        ranks=start.ranks,
    )  # fmt: skip
    torch.manual_seed(start.seed)
    config = model_config(settings, len(data.tokens.dictionary))
    model = untrained_language_model(config).to(start.device).train()

    def losses(logits: Tensor, targets: Tensor) -> tuple[Tensor]:
        """The summed loss. Shape of `logits`: (B, T, V)."""
        return (F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum"),)

    def point(run: TrainingRun[CurvePoint], means: list[float], rate: float) -> CurvePoint:
        start, precision = data.tokens.dictionary.eos_index, settings.precision
        found = token_losses(model, data.splits["valid"], context=context, start=start, precision=precision)
        return CurvePoint(
            iteration=run.iteration,
            lr=run.lr,
            train_loss=means[0],
            valid_loss=float(found.sum()) / len(found),
            tokens_per_second=rate,
            seconds=run.seconds,
        )

    def line(point: CurvePoint) -> str:
        parts = [
            f"iteration {point.iteration:,}/{settings.iterations:,}",
            f"lr {point.lr:.4g}",
            f"loss per {unit}: training {point.train_loss:.4f}, validation {point.valid_loss:.4f}",
            f"{point.tokens_per_second:,.0f} {unit}s/s",
        ]
        return "   ".join(parts)

    return TrainingRun(
        start=start,
        model=model,
        optimiser=torch.optim.AdamW(
            parameter_groups(model, settings), lr=settings.lr, betas=(settings.beta1, settings.beta2), fused=True
        ),
        iterations=settings.iterations,
        batch=batch,
        losses=losses,
        learning_rate=partial(learning_rate, settings),
        point_every=settings.evaluate_every,
        point_type=CurvePoint,
        point=point,
        line=line,
        data={"text_sha256": data.described["files_sha256"]},
        config={"task": TASK, "model": config, "corpus": data.name},
        more_files=data.tokens.save,
        about={"text": data.described},
        name=f"{settings.layers} layers, {settings.features} features, {settings.connection}, {data.name}",
        evaluated_on="validation",
    )


def parameter_groups(model: nn.Module, settings: TrainingSettings) -> list[dict[str, Any]]:
    """The optimiser's groups: matrices decay; vectors, scalars and what `no_weight_decay` names don't."""
    without, named = no_weight_decay(model), list(model.named_parameters())
    decaying = {name for name, parameter in named if parameter.dim() >= 2 and name not in without}
    return [
        {"params": [each for name, each in named if name in decaying], "weight_decay": settings.weight_decay},
        {"params": [each for name, each in named if name not in decaying], "weight_decay": 0.0},
    ]
