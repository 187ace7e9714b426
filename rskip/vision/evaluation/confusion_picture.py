"""A confusion matrix as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rskip.files.picture import picture
from rskip.vision.evaluation.evaluate import Evaluation

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_NUMBERED = 20  # classes; with more the cells are too small for numbers
_DARK = 0.5  # of the colour scale; numbers are white from here


def draw_confusion(evaluation: Evaluation, path: Path, *, title: str) -> None:
    """Writes the picture, PNG or SVG by the file's name; the same bytes for the same evaluation and matplotlib.

    Rows are the true classes, columns the predicted ones; the colour is the share of the row's images, by its square
    root, so that rare confusions can be seen beside the diagonal. Up to MOST_NUMBERED classes each cell has its number.

    :param title: its first line; the error is written under it.
    :raises ValueError: as `rskip.files.picture.check_picture`.
    """
    classes = len(evaluation.classes)
    side = 3.0 + 0.5 * classes if classes <= MOST_NUMBERED else 3.0 + 0.13 * classes
    with picture(path, figsize=(side + 0.8, side), layout="constrained") as figure:
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
    size: Any = "medium" if len(images) <= MOST_NUMBERED else 5
    names, places = evaluation.classes, range(len(images))
    axes.set_xticks(places, names, rotation=90, fontsize=size)
    axes.set_yticks(places, names, fontsize=size)
    axes.set(xlabel="taken for", ylabel="class")
    if len(images) > MOST_NUMBERED:
        return
    for true, predicted in zip(*np.nonzero(images), strict=True):
        colour = "white" if norm(share[true, predicted]) > _DARK else "black"
        axes.text(
            predicted, true, f"{images[true, predicted]:,}", ha="center", va="center", color=colour, fontsize="small"
        )
