"""The chart of a comparison: loss against time, a line for each connection with its name at its end."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any

from rskip.analysis.figures import COLOURS, DASHES, STYLE, WIDTH
from rskip.extras import extra

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_HEIGHT, _LINE = 3.6, 0.19  # inches of the chart, and between two names
_SHORT = 0.5  # minutes below which the axis has seconds
_SHARE = 0.6  # of the losses' range that is shown below the first points, which are far above


def draw(curves: Mapping[str, Sequence[tuple[float, float]]]) -> Figure:
    """The chart of curves by name: pairs of minutes and loss.

    :raises MissingExtra: matplotlib is missing.
    """
    with extra("plots", what="a chart"):
        import matplotlib
        from matplotlib.figure import Figure as NewFigure
    settings: Any = {**STYLE, "svg.hashsalt": "rskip"}
    with matplotlib.rc_context(settings):
        figure = NewFigure(figsize=(WIDTH, _HEIGHT), layout="constrained")
        axes = figure.subplots()
        short = max((curve[-1][0] for curve in curves.values()), default=0.0) < _SHORT  # none: all diverged
        axes.set_xlabel(f"{'seconds' if short else 'minutes'} of training")
        axes.set_ylabel("held-out loss")
        ends = {}
        for (name, curve), colour, dash in zip(
            curves.items(), cycle(COLOURS), cycle(dash for dash in DASHES for _ in COLOURS)
        ):  # fmt: skip
            curve = [(minutes * 60 if short else minutes, loss) for minutes, loss in curve]
            axes.plot(*zip(*curve, strict=True), color=colour, linestyle=dash, marker="o")
            ends[name] = (*curve[-1], colour)
        later = [loss for curve in curves.values() for _, loss in curve[len(curve) // 2 :]]
        if later and max(later) > min(later):
            room = (max(later) - min(later)) * (1 - _SHARE)
            axes.set_ylim(min(later) - room / 2, max(later) + room)
        axes.margins(x=0.02)
        _write_names(figure, ends)
    return figure


def _write_names(figure: Figure, ends: Mapping[str, tuple[float, float, str]]) -> None:
    """Writes names at the right edge, at the height of the lines' ends, but apart from each other."""
    (axes,) = figure.axes
    low, high = axes.get_ylim()
    apart = (high - low) * _LINE / (_HEIGHT - 0.6)
    names = sorted(ends, key=lambda name: ends[name][1])
    places: list[float] = []
    for name in names:
        places.append(max(ends[name][1], places[-1] + apart if places else low))
    if places and (over := places[-1] - high) > 0:  # move the upper names down
        places[-1] -= over
        for at in range(len(places) - 2, -1, -1):
            places[at] = min(places[at], places[at + 1] - apart)
    edge = axes.get_xlim()[1]
    for name, place in zip(names, places, strict=True):
        x, y, colour = ends[name]
        axes.annotate(
            name, (x, y), (edge, place), color=colour, va="center", annotation_clip=False, parse_math=False,
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.5, "alpha": 0.5},
        )  # fmt: skip


def as_svg(figure: Figure) -> str:
    """The figure as an SVG element."""
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue().partition("<svg")[2].join(("<svg", ""))
