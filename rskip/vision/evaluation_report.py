"""Prints an evaluation as text, and plots its confusion matrix."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rskip.extras import extra
from rskip.files.plot import plot_file
from rskip.machine.terminal import columns
from rskip.vision.evaluation import Evaluation

with extra("vision"):
    import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FEW_CLASSES = 20  # maximum number of classes for the matrix in the text, and for numbers in the plot
_MOST_CONFUSIONS = 20
_NOTHING = "-"
_DARK = 0.5  # point of the colour scale from which numbers are white


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

    images = np.array(evaluation.confusion)  # (K, K), true by predicted
    share = 100 * images / np.maximum(images.sum(axis=1, keepdims=True), 1)
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
    for true, predicted in zip(*np.nonzero(images), strict=True):
        colour = "white" if norm(share[true, predicted]) > _DARK else "black"
        axes.text(
            predicted, true, f"{images[true, predicted]:,}", ha="center", va="center", color=colour, fontsize="small"
        )
