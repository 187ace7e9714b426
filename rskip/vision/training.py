"""Trains image models with the loop of `rskip.tasks.training`. N batch, K classes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rskip.connections.norms import take_batch_counts
from rskip.settings.check import to_plain
from rskip.settings.errors import SettingError
from rskip.settings.kinds import Count
from rskip.tasks import training
from rskip.tasks.training import Diverged, Start, TrainingRun
from rskip.tasks.training_folder import TrainingFolder, read_points
from rskip.vision.data import ImageSet, TrainingBatches, load_dataset
from rskip.vision.evaluation import evaluate
from rskip.vision.model_file import TASK, build_model, model_config, model_name
from rskip.vision.own_images import OwnImages, load_own_images
from rskip.vision.settings import TrainingSettings, learning_rate

__all__ = ["CurvePoint", "Diverged", "Start", "TrainingFolder", "TrainingSettings", "read_curve", "train"]


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """A point of the learning curve, at the end of an epoch or of the training.

    :param epoch: the epoch, from 1.
    :param iteration: number of completed iterations.
    :param lr: learning rate of the last iteration.
    :param train_loss, train_error: means over the training images since the previous point, with augmentation and label
        smoothing. Losses are in nats, errors in %.
    :param test_loss, test_error: results of the current iterate; None if it was not evaluated.
    :param images_per_second: training speed since the previous point.
    :param seconds: duration of all sessions so far, including evaluations.
    """

    epoch: Count
    iteration: Count
    lr: float
    train_loss: float
    train_error: float
    test_loss: float | None
    test_error: float | None
    images_per_second: float
    seconds: float


read_curve = partial(read_points, kind=CurvePoint)


def train(
    settings: TrainingSettings, *, folder: Path, seed: int, data: Path | None = None, download: bool = False,
    **options: Any,
) -> TrainingRun[CurvePoint]:  # fmt: skip
    """Trains to the end, from the start or from the folder's checkpoint.pt.

    :param data: folder of the dataset; None: the default of `load_dataset`. Your own images are in `settings.data`.
    :param download: whether to download the dataset if it is missing or damaged.
    :param folder, seed, options: see `rskip.tasks.training.train`, which also takes device, tracker and observer.
    :raises ValueError: also if images can't be read.
    """

    def build(start: Start) -> TrainingRun[CurvePoint]:
        if settings.sync_batch_norm and start.ranks.count > 1 and start.device.type == "cpu":
            problem = f"is true for {start.ranks.count} processes on a CPU"
            advice = "leave it out, or train in one process"
            raise SettingError("sync_batch_norm", problem, expected="GPUs", advice=advice)
        if settings.data is None:
            images, test_images = (
                load_dataset(settings.dataset, data, train=part, download=download) for part in (True, False)
            )
            return image_training(start, images, test_images)
        own = load_own_images(settings)
        return image_training(start, own.train, own.held_out, own=own)

    apart = None if settings.data is None else Path(settings.data)
    return training.train(build, settings, folder=folder, apart=apart, seed=seed, **options)


def image_training(
    start: Start, images: ImageSet, test_images: ImageSet, *, own: OwnImages | None = None
) -> TrainingRun[CurvePoint]:
    """The training run of a model, at its start. `own` are the images if they are your own, None for a dataset.

    :raises ValueError: the settings don't fit these images or processes.
    """
    settings: TrainingSettings = start.settings
    device, ranks = start.device, start.ranks
    last = len(images) % settings.batch_size or settings.batch_size
    if last < ranks.count:
        problem = f"an epoch's last batch has {last} images for {ranks.count} processes"
        raise ValueError(f"{problem}: choose another batch_size")
    batches = TrainingBatches(
        images, batch_size=settings.batch_size, seed=start.seed, device=device, flip=settings.flip, ranks=ranks,
        channels_last=settings.channels_last,
    )  # fmt: skip
    per_epoch = batches.batches_per_epoch
    schedule = settings.in_iterations(per_epoch)
    iterations = cast(int, schedule.iterations)
    torch.manual_seed(start.seed)
    config = model_config(settings, len(images.classes), size=None if own is None else own.description.size)
    model = build_model(config)
    if settings.sync_batch_norm and ranks.count > 1:
        nn.SyncBatchNorm.convert_sync_batchnorm(model)  # replaces modules in place; only on GPUs
    model.to(device).train()
    if settings.channels_last:
        model.to(memory_format=torch.channels_last)
    groups = parameter_groups(model, settings)
    optimiser: torch.optim.Optimizer
    if settings.optimiser == "sgd":
        optimiser = torch.optim.SGD(groups, lr=settings.lr, momentum=settings.momentum, nesterov=settings.nesterov)
    else:
        optimiser = torch.optim.AdamW(groups, lr=settings.lr)
    batch_counts = take_batch_counts(model)

    def count(*_: Any) -> None:
        torch._foreach_add_(batch_counts, 1)

    if batch_counts:  # torchvision's normalisations count batches themselves
        optimiser.register_step_post_hook(count)
    about: dict[str, Any] = {}
    dataset, classes, evaluated_on = settings.dataset, list(images.classes), "test"
    if own is not None:
        about = {"classes": classes, "images": to_plain(own.description)}
        dataset = own.description.name
        evaluated_on = "validation" if own.split == "valid" else "test"

    def losses(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The summed loss and the number of errors. Shape of `logits`: (N, K)."""
        loss = F.cross_entropy(logits, labels, reduction="sum", label_smoothing=settings.label_smoothing)
        return loss, (logits.detach().argmax(dim=1) != labels).sum()

    def point(run: TrainingRun[CurvePoint], means: list[float], rate: float) -> CurvePoint:
        epoch, found = -(-run.iteration // per_epoch), None
        if run.iteration == iterations or epoch % settings.evaluate_every == 0:
            nonlocal test_images
            test_images = test_images.to(device)  # where they stay
            found = evaluate(model, test_images, dataset=dataset, device=device, precision=settings.precision)
        return CurvePoint(
            epoch=epoch,
            iteration=run.iteration,
            lr=run.lr,
            train_loss=means[0],
            train_error=100 * means[1],
            test_loss=None if found is None else found.loss,
            test_error=None if found is None else found.error,
            images_per_second=rate,
            seconds=run.seconds,
        )

    def line(point: CurvePoint) -> str:
        parts = [
            f"epoch {point.epoch}/{-(-iterations // per_epoch)}",
            f"iteration {point.iteration:,}",
            f"lr {point.lr:.4g}",
            f"training loss {point.train_loss:.4f}, error {point.train_error:.2f} %",
        ]
        if point.test_loss is not None:
            parts.append(f"{evaluated_on} loss {point.test_loss:.4f}, error {point.test_error:.2f} %")
        return "   ".join([*parts, f"{point.images_per_second:,.0f} images/s"])

    notes = [] if own is None else [*own.notes]
    run = TrainingRun(
        start=start,
        model=model,
        # not dynamic, since there are only two batch sizes: an epoch's last batch is smaller
        trained=cast(nn.Module, torch.compile(model, dynamic=False)) if settings.compile else None,
        optimiser=optimiser,
        iterations=iterations,
        batch=batches.batch,
        losses=losses,
        learning_rate=partial(learning_rate, schedule),
        point_every=per_epoch,
        point_type=CurvePoint,
        point=point,
        line=line,
        data={} if own is None else {"images_sha256": str(own.description.sha256), "size": own.description.size},
        config={"task": TASK, "model": config, "dataset": settings.dataset, "classes": classes, **about},
        about={"iterations": iterations, **about},
        notes=notes,
        name=f"{model_name(config)}, {dataset}",
        evaluated_on=evaluated_on,
    )
    if settings.compile and ranks.count == 1:
        compile_model(run)
    first = (*settings.milestones, 0)[0]
    if settings.schedule == "step" and iterations <= first:
        notes.append(
            f"note: the learning rate never falls: the training ends after {iterations:,} iterations, and the "
            f"first of its milestones is {first:,}; give other milestones, or the schedule one_cycle"
        )
    return run


def compile_model(run: TrainingRun[CurvePoint]) -> None:
    """Compiles the model for each batch size, without changing the training.

    :raises ValueError: torch.compile failed.
    """
    statistics = {name: buffer.clone() for name, buffer in run.model.named_buffers()}
    last = run.point_every - 1  # of an epoch
    try:
        for iteration in (0, last) if run.iterations > last else (0,):
            images, labels, _ = run.batch(iteration)
            run.sums(cast(nn.Module, run.trained), images, labels)[0].backward()
    except Exception as error:  # PyTorch's compilers and the programs that they start raise errors of any type
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(f"torch.compile failed ({reason:.80}): give --no-compile") from error
    run.optimiser.zero_grad()
    for name, buffer in run.model.named_buffers():
        buffer.copy_(statistics[name])


def parameter_groups(model: nn.Module, settings: TrainingSettings) -> list[dict[str, Any]]:
    """The optimiser's groups: all parameters, or separately those with and without weight decay.

    With decay="weights" only the weights of convolutions and linear maps outside connections decay. Biases, gains of
    normalisations, position embeddings and the parameters of connections don't.
    """
    if settings.decay == "all":
        return [{"params": list(model.parameters()), "weight_decay": settings.weight_decay}]
    layers = [name for name, module in model.named_modules() if isinstance(module, (nn.Conv2d, nn.Linear))]
    weights = {f"{name}.weight" for name in layers if "connection" not in name.split(".")}
    named = list(model.named_parameters())
    return [
        {"params": [each for name, each in named if name in weights], "weight_decay": settings.weight_decay},
        {"params": [each for name, each in named if name not in weights], "weight_decay": 0.0},
    ]
