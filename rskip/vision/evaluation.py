"""Measures a model's error on a set of images, in total and per class, its confusion matrix and its speed.

`text_form` prints an evaluation, and `draw_confusion` plots its confusion matrix.

N batch, K classes, H, W.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.swa_utils import update_bn

from rskip.files.plot import plot_file
from rskip.machine.device import usable_device
from rskip.machine.terminal import columns
from rskip.tasks.training import OutputsNotFinite, device_name
from rskip.vision.data import ImageSet, TrainingBatches, evaluation_batches

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TOP = 5
FEW_CLASSES = 20  # maximum number of classes for the matrix in the text, and for numbers in the plot
_MOST_CONFUSIONS = 20
_NOTHING = "-"
_DARK = 0.5  # point of the colour scale from which numbers are white


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

    Each batch is normalised by its own statistics, as in training. All batches have the same weight, so they are made
    of nearly equal size. Parameters and the model's mode don't change.

    :param batch_size: the most images in a batch.
    :param augment: whether to crop and flip the images as in training.
    :param flip: whether augmentation flips images.
    :param seed: random seed of order and augmentation, see `TrainingBatches`.
    :param device: the device to which the model is moved; None: the model's device.
    """
    device = usable_device(next(model.parameters()).device if device is None else device)
    model.to(device)
    size = math.ceil(len(images) / math.ceil(len(images) / batch_size))
    batches = TrainingBatches(images, batch_size=size, seed=seed, device=device, augment=augment, flip=flip)
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


def text_form(evaluation: Evaluation) -> str:
    """The overall metrics, a table of the classes, and the confusion matrix."""
    parts = [_figures(evaluation), _classes(evaluation)]
    parts.append(_matrix(evaluation) if len(evaluation.classes) <= FEW_CLASSES else _confusions(evaluation))
    return "\n\n".join(part for part in parts if part) + "\n"


def _figures(evaluation: Evaluation) -> str:
    wrong = round(evaluation.error * evaluation.count / 100)
    top5 = f"top-5 error {evaluation.top5_error:.2f} %, " if len(evaluation.classes) > 5 else ""
    return (
        f"error {evaluation.error:.2f} % ({wrong:,} of {evaluation.count:,} images), {top5}loss {evaluation.loss:.4f}\n"
        f"{evaluation.images_per_second:,.0f} images/s ({evaluation.device}, {evaluation.precision}, "
        f"batches of {evaluation.batch_size:,}, median)"
    )


def _classes(evaluation: Evaluation) -> str:
    rows = [["class", "images", "error", "precision", "most often confused with"]]
    for figures in evaluation.per_class:
        confusion = f"{figures.taken_for} ({figures.taken:,})" if figures.taken_for else ""
        shares = [_NOTHING if share is None else f"{share:.2f} %" for share in (figures.error, figures.precision)]
        rows.append([figures.name, f"{figures.count:,}", *shares, confusion])
    return columns(rows, left=(0, 4), indent="  ")


def _matrix(evaluation: Evaluation) -> str:
    """The matrix with true classes as rows and predicted ones as columns, by number."""
    rows = [["", "", *map(str, range(len(evaluation.classes)))]]
    for number, (name, row) in enumerate(zip(evaluation.classes, evaluation.confusion, strict=True)):
        rows.append([f"{number}", name, *(f"{images:,}" if images else "." for images in row)])
    return "confusion matrix (rows: true class, columns: predicted class):\n" + columns(rows, left=(1,), indent="  ")


def _confusions(evaluation: Evaluation) -> str:
    """The most frequent confusions in descending order."""
    found = sorted(
        (-images, true, predicted)
        for true, row in enumerate(evaluation.confusion)
        for predicted, images in enumerate(row)
        if images and true != predicted
    )
    if not found:
        return ""
    names = evaluation.classes
    rows = [[names[true], "predicted as", names[of], f"{-images:,}"] for images, true, of in found[:_MOST_CONFUSIONS]]
    return "most frequent confusions:\n" + columns(rows, left=(0, 1, 2), indent="  ")


def draw_confusion(evaluation: Evaluation, path: Path, *, title: str) -> None:
    """Writes the plot as PNG or SVG, by the file's name. The same evaluation and matplotlib give the same bytes.

    Rows are the true classes, columns the predicted ones. The colour is the square root of the share of the row's
    images, so rare confusions are visible. Up to FEW_CLASSES classes the cells have numbers.

    :param title: first line of the title. The second line is the error.
    :raises ValueError: as `rskip.files.plot.check_plot`.
    """
    classes = len(evaluation.classes)
    side = 3.0 + 0.5 * classes if classes <= FEW_CLASSES else 3.0 + 0.13 * classes
    with plot_file(path, figsize=(side + 0.8, side), layout="constrained") as figure:
        axes = figure.subplots()
        axes.set_title(f"{title}\nerror {evaluation.error:.2f} % of {evaluation.count:,} images")
        _draw_matrix(axes, evaluation)


def _draw_matrix(axes: Axes, evaluation: Evaluation) -> None:
    from matplotlib.colors import PowerNorm

    images = torch.tensor(evaluation.confusion)  # (K, K), true by predicted
    share = (100 * images / images.sum(dim=1, keepdim=True).clamp(min=1).double()).numpy()
    norm = PowerNorm(gamma=0.5, vmin=0, vmax=100)
    drawn = axes.imshow(share, norm=norm, cmap="Blues", interpolation="nearest")
    assert axes.figure is not None
    axes.figure.colorbar(drawn, ax=axes, label="% of the class's images", shrink=0.8, ticks=(0, 1, 5, 20, 50, 100))
    size: Any = "medium" if len(images) <= FEW_CLASSES else 5
    names, places = evaluation.classes, range(len(images))
    axes.set_xticks(places, names, rotation=90, fontsize=size)
    axes.set_yticks(places, names, fontsize=size)
    axes.set(xlabel="predicted class", ylabel="true class")
    if len(images) > FEW_CLASSES:
        return
    for true, predicted in images.nonzero().tolist():
        colour = "white" if norm(share[true, predicted]) > _DARK else "black"
        axes.text(
            predicted, true, f"{images[true, predicted]:,}", ha="center", va="center", color=colour, fontsize="small"
        )
