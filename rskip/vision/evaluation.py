"""Measures a model's error on a set of images, in total and per class, its confusion matrix and its speed.

N batch, K classes, H, W.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.swa_utils import update_bn

from rskip.machine.device import usable_device
from rskip.tasks.training import OutputsNotFinite, device_name
from rskip.vision.data import ImageSet, TrainingBatches, evaluation_batches

TOP = 5


@dataclass(frozen=True)
class ClassMetrics:
    """The metrics of one class.

    count: number of its images; correct: those that are predicted correctly; predicted: images predicted as this class.
    error: % of `count` that are not in `correct`; None without images of the class.
    precision: `correct` in % of `predicted`; None without predictions.
    taken_for: the wrong class that its images are most often predicted as; None without errors. taken: the number of
    these images.
    """

    name: str
    count: int
    correct: int
    predicted: int
    error: float | None
    precision: float | None
    taken_for: str | None
    taken: int


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The result of `evaluate`.

    error, top5_error: % of the images whose class is not the model's first choice, or not among its first five.
    loss: mean cross-entropy in nats, without label smoothing.
    confusion: number of images as `confusion[true][predicted]`, in the order of `per_class`.
    images_per_second: median over the batches, from pixels on the device to predictions, after a warm-up.
    seconds: duration of the measurement, including the warm-up.
    """

    dataset: str
    count: int
    error: float
    top5_error: float
    loss: float
    per_class: tuple[ClassMetrics, ...]
    confusion: tuple[tuple[int, ...], ...]
    images_per_second: float
    seconds: float
    batch_size: int
    precision: str
    device: str

    @property
    def accuracy(self) -> float:
        """% of the images whose class is the model's first choice."""
        return 100 - self.error

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes."""
        return tuple(figures.name for figures in self.per_class)

    def to_dict(self) -> dict[str, Any]:
        """All values as plain JSON values."""
        return {**asdict(self), "accuracy": self.accuracy}


def evaluate(
    model: nn.Module,
    images: ImageSet,
    *,
    dataset: str,
    batch_size: int | None = None,
    device: torch.device | str | None = None,
    precision: str = "float32",
) -> Evaluation:
    """Classifies every image once, without augmentation, with the model in eval mode. Its mode is restored.

    Of equal logits the class with the lower number comes first, on every device. In float32 a GPU's convolutions use
    TF32 if PyTorch's settings allow it (`rskip.machine.device.set_gpu_arithmetic`).

    :param dataset: name of the images, for the report.
    :param batch_size: images per batch, which changes only speed and memory. None: `evaluation_batch`.
    :param device: the device to which the model is moved; None: the model's device.
    :param precision: float32, or bfloat16 (autocast).
    :raises ValueError: there are no images, or the batch size or device is not possible.
    :raises OutputsNotFinite: the outputs are not finite.
    """
    if not len(images):
        raise ValueError(f"{dataset} has no images to evaluate on: expected at least one")
    if batch_size is None:
        batch_size = evaluation_batch(images.images.shape[-1])
    if batch_size < 1:
        raise ValueError(f"the batch size is {batch_size}: expected 1 or more")
    device = usable_device(next(model.parameters()).device if device is None else device)
    model.to(device)
    images = images.to(device)
    count, number = len(images), len(images.classes)
    confusion = torch.zeros(number**2, dtype=torch.int64, device=device)
    outside_top = torch.zeros((), dtype=torch.int64, device=device)
    loss = torch.zeros((), dtype=torch.float64, device=device)
    finite = torch.ones((), dtype=torch.bool, device=device)
    rates = []
    mode = model.training
    model.eval()
    begin = time.perf_counter()
    try:
        with torch.inference_mode(), torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16"):
            began = _clock(device)
            for pixels, labels in evaluation_batches(images, batch_size=batch_size, device=device):
                logits = model(pixels).float()  # (N, K)
                ended = _clock(device)
                rates.append(len(labels) / (ended - began))
                finite &= logits.isfinite().all()
                predicted, place = ranked(logits, labels)
                confusion.scatter_add_(0, labels * number + predicted, torch.ones_like(labels))
                outside_top += (place >= TOP).sum()
                loss += F.cross_entropy(logits, labels, reduction="sum").double()
                began = _clock(device)
    finally:
        model.train(mode)
    if not finite:
        raise OutputsNotFinite
    table = confusion.view(number, number).cpu()  # (K, K), true by predicted
    return Evaluation(
        dataset=dataset,
        count=count,
        error=100 * (count - int(table.trace())) / count,
        top5_error=100 * int(outside_top) / count,
        loss=float(loss) / count,
        per_class=per_class_metrics(images.classes, table),
        confusion=tuple(tuple(row) for row in table.tolist()),
        images_per_second=statistics.median(rates),
        seconds=time.perf_counter() - begin,
        batch_size=batch_size,
        precision=precision,
        device=device_name(device),
    )


def evaluation_batch(side: int) -> int:
    """The default batch size: 500 images of at most 64 by 64 pixels, or 50 larger ones."""
    return 500 if side <= 64 else 50


def recalibrate(
    model: nn.Module,
    images: ImageSet,
    *,
    batch_size: int = 500,
    augment: bool = True,
    flip: bool = True,
    seed: int = 0,
    device: torch.device | str | None = None,
) -> None:
    """Replaces the running statistics of batch normalisation by their averages over the images, in one pass.

    Each batch is normalised by its own statistics, as in training. All batches have the same weight, so `batch_size`
    should divide the number of images. Parameters and the model's mode don't change.

    :param augment: whether to crop and flip the images as in training.
    :param flip: whether augmentation flips images.
    :param seed: random seed of order and augmentation, see `TrainingBatches`.
    :param device: the device to which the model is moved; None: the model's device.
    """
    device = usable_device(next(model.parameters()).device if device is None else device)
    model.to(device)
    batches = TrainingBatches(images, batch_size=batch_size, seed=seed, device=device, augment=augment, flip=flip)
    update_bn((batches.batch(number)[0] for number in range(batches.batches_per_epoch)), model)


def ranked(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The model's first choice (N,), and the number of classes that it prefers to the correct one (N,), 0 if correct.

    Of equal logits (N, K) the lower number comes first.
    """
    right = logits.gather(1, labels[:, None])  # (N, 1)
    numbers = torch.arange(logits.shape[1], device=logits.device)
    before = (logits > right) | ((logits == right) & (numbers < labels[:, None]))  # (N, K)
    return logits.argmax(dim=1), before.sum(dim=1)  # argmax returns the first of equal logits


def per_class_metrics(names: Sequence[str], confusion: Tensor) -> tuple[ClassMetrics, ...]:
    """Each class's metrics from the confusion matrix (true, predicted). Shape: (K, K)."""
    metrics = []
    for place, (name, row) in enumerate(zip(names, confusion.tolist(), strict=True)):
        count, correct, predicted = sum(row), row[place], int(confusion[:, place].sum())
        error = 100 * (count - correct) / count if count else None
        precision = 100 * correct / predicted if predicted else None
        others = [0 if other == place else images for other, images in enumerate(row)]
        taken = max(others)
        taken_for = names[others.index(taken)] if taken else None
        metrics.append(ClassMetrics(name, count, correct, predicted, error, precision, taken_for, taken))
    return tuple(metrics)


def _clock(device: torch.device) -> float:
    """The time in seconds, after the device has finished its queued work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
