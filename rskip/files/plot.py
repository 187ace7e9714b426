"""Draws plots as PNG or SVG files with matplotlib (extra `plots`)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rskip.extras import extra
from rskip.files.whole import atomic_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS = (".png", ".svg")


def check_plot(path: Path) -> None:
    """Checks before the work whether a plot can be drawn.

    :raises ValueError: the suffix is not in KINDS, or matplotlib is missing.
    """
    if path.suffix.lower() not in KINDS:
        raise ValueError(f"{path}: expected a file name that ends in {' or '.join(KINDS)}")
    with extra("plots", what="a plot"):
        import matplotlib  # noqa: F401


@contextmanager
def plot_file(
    path: Path,
    *,
    style: Mapping[str, Any] | None = None,
    description: str = "",
    few_colours: bool = False,
    **figure_options: Any,
) -> Iterator[Figure]:
    """Yields an empty figure, which becomes the file at the end of the block. The same drawing gives the same bytes.

    :param style: matplotlib's settings (rcParams).
    :param description: text to store in the file.
    :param few_colours: reduce a PNG to 256 colours; not for photographs.
    :param figure_options: options of matplotlib's Figure.
    :raises ValueError: as `check_plot`.
    """
    check_plot(path)
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.text import Text

    settings: Any = {"svg.hashsalt": "rskip", "font.size": 10, **(style or {})}
    with matplotlib.rc_context(settings):
        figure = Figure(**figure_options)
        yield figure
        for text in figure.findobj(Text):
            if text.get_text():  # texts of the caller are not formulas; matplotlib adds its own numbers later
                text.set_parse_math(False)
        kind = path.suffix.lower()
        with atomic_file(path) as temporary:
            metadata = {"Description": description} if description else {}
            dated = {"Date": None} if kind == ".svg" else {}
            figure.savefig(temporary, format=kind.removeprefix("."), dpi=150, metadata=metadata | dated)
            if kind == ".svg":
                _shorten(temporary)
            elif few_colours:
                _reduce_colours(temporary, description)


def _shorten(svg: Path) -> None:
    """Rounds coordinates to a tenth of a point. The other digits would be a third of the file."""
    text = svg.read_text(encoding="utf-8")
    for number in (r"([ML] )(-?[\d.]+)( )(-?[\d.]+)", r'( x=")([\d.]+)(" y=")([\d.]+)'):
        text = re.sub(number, lambda m: f"{m[1]}{float(m[2]):.1f}{m[3]}{float(m[4]):.1f}", text)
    svg.write_text(re.sub(r"^ +| +$", "", text, flags=re.MULTILINE), encoding="utf-8")


def _reduce_colours(png: Path, description: str) -> None:
    """Reduces an image to 256 colours, enough for lines and areas. The file is a third as large."""
    from PIL import Image, PngImagePlugin

    texts = PngImagePlugin.PngInfo()
    texts.add_text("Description", description)
    with Image.open(png, formats=["PNG"]) as image:
        reduced = image.convert("RGB").quantize(256, dither=Image.Dither.NONE)
        reduced.save(png, optimize=True, pnginfo=texts, dpi=(150, 150))
