"""Draws captions next to their images on a contact sheet, and the decoder's attention for each word."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rskip.captioning.captioner import Caption
from rskip.captioning.files import CaptionResult
from rskip.extras import extra
from rskip.files.images import read_image
from rskip.files.names import line_name
from rskip.files.plot import plot_file

with extra("captioning"):
    import numpy as np
    from PIL import Image

_COLUMNS = 2
_PIXELS = 480  # longer side of a drawn image
_WORDS_IN_A_ROW = 6


def drawn(
    captions: Iterable[CaptionResult], *, attention: Sequence[Path] | None, sheet: Path | None
) -> Iterator[CaptionResult]:
    """Yields captioned images unchanged, and draws those that have a caption.

    :param attention: the file for each image's attention; None: no drawings.
    :param sheet: the file for a sheet of all images with captions, drawn after the last image; None: no sheet.
    """
    on_sheet = []
    for number, each in enumerate(captions):
        yield each
        if each.caption is not None:
            on_sheet.append((each.path, each.caption.text))
            if attention is not None:
                draw_attention(each.path, each.caption, attention[number])
    if sheet is not None and on_sheet:
        draw_sheet(on_sheet, sheet)


def draw_sheet(captions: Sequence[tuple[Path, str]], path: Path) -> None:
    """Draws images with their captions next to them, two per row.

    :param captions: the files of the images, and their captions.
    """
    rows = math.ceil(len(captions) / _COLUMNS)
    with plot_file(path, figsize=(11, 2.4 * rows + 0.2), layout="constrained") as figure:
        axes = figure.subplots(rows, 2 * _COLUMNS, squeeze=False).ravel()
        for each in axes:
            each.set_axis_off()
        for (file, text), image_axes, text_axes in zip(captions, axes[::2], axes[1::2], strict=False):
            image_axes.imshow(_small(file))
            image_axes.set_anchor("NW")
            text_axes.text(0, 0.95, textwrap.fill(text, 26), va="top", fontsize=11)
            text_axes.text(0, 0.02, line_name(file.name), va="bottom", fontsize=6, color="grey")


def draw_attention(file: Path, caption: Caption, path: Path) -> None:
    """Draws the image once per word of its best caption, brighter where the decoder's attention for the word is larger.

    :param caption: a caption of grid features, with attention.
    """
    best = caption.hypotheses[0]
    if caption.grid is None:
        raise ValueError("attention can't be drawn: the model reads regions, expected the cells of a grid")
    assert best.attention is not None
    image = _small(file)
    panels = 1 + len(best.tokens)
    columns = min(panels, _WORDS_IN_A_ROW)
    rows = math.ceil(panels / columns)
    height = 2 * min(image.height / image.width, 2) + 0.35
    with plot_file(path, figsize=(2 * columns, height * rows), layout="constrained") as figure:
        axes = figure.subplots(rows, columns, squeeze=False).ravel()
        for each in axes:
            each.set_axis_off()
        axes[0].imshow(image)
        for panel, word, weights in zip(axes[1:], best.tokens, best.attention, strict=False):
            panel.imshow(_lit(image, weights.float().reshape(caption.grid).numpy()))
            panel.set_title(word, fontsize=9)


def _lit(image: Any, weights: np.ndarray) -> np.ndarray:
    """The image, darkened where the weights of the grid are small relative to the largest."""
    light = Image.fromarray(weights / weights.max()).resize(image.size, Image.Resampling.BICUBIC)
    shown = 0.12 + 0.88 * np.asarray(light).clip(0, 1)[:, :, None]  # (H, W, 1)
    return (np.asarray(image) * shown).astype(np.uint8)


def _small(file: Path) -> Any:
    image = read_image(file)
    image.thumbnail((_PIXELS, _PIXELS))
    return image
