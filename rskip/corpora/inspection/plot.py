"""Plots an inspection: lengths of both sides, lengths of pairs, coverage of the vocabulary."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rskip.corpora.inspection.inspection import Inspection, descending_frequencies, percentile
from rskip.extras import extra
from rskip.files.plot import check_plot, plot_file

with extra("translation", what="a corpus of text"):
    import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# colours that colour-blind people can distinguish (Okabe and Ito)
_STYLES: tuple[dict[str, Any], ...] = ({"color": "#0072b2", "linestyle": "-"}, {"color": "#d55e00", "linestyle": "--"})
_BARS, _CELLS, _POINTS = 100, 200, 2000


def draw(inspection: Inspection, path: Path) -> None:
    """Writes the plot as PNG or SVG, by the file's name. The same inspection and matplotlib give the same bytes.

    :raises ValueError: as `check_plot`, or there is nothing to draw.
    """
    check_plot(path)
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    data, statistics, sentences = inspection.data, inspection.statistics, inspection.shown["sentences"]
    shown = statistics["shown_split"]
    if not sentences:
        raise ValueError(f"{data.path}: {shown} has no sentences to plot")
    name = statistics["corpus"]["name"] if statistics["corpus"] else data.path.resolve().name
    end = max(1, *(percentile(*inspection.pair_lengths.side(side), 99) for side in (0, 1)))
    style = {"axes.spines.top": False, "axes.spines.right": False}
    layout = ConstrainedLayoutEngine(wspace=0.05, h_pad=0.1)
    with plot_file(path, style=style, figsize=(15, 4.8), layout=layout) as figure:
        histograms, joint, coverage = figure.subplots(1, 3)
        figure.suptitle(f"{name} ({' → '.join(data.languages)}), {shown}: {sentences:,} pairs")
        _draw_histograms(histograms, inspection, end)
        _draw_joint(joint, inspection, end)
        _draw_coverage(coverage, inspection)


def _edges(end: int, count: int) -> np.ndarray:
    """The edges of about `count` equal ranges of lengths up to `end`."""
    width = -(-(end + 1) // count)
    return np.arange(end // width + 2) * width - 0.5


def _draw_histograms(axes: Axes, inspection: Inspection, end: int) -> None:
    """Draws the number of sentences by length up to `end`, for both sides."""
    edges = _edges(end, _BARS)
    longest, width = 0, int(edges[1] - edges[0])
    for side, (language, statistics) in enumerate(inspection.shown["sides"].items()):
        lengths, sentences = inspection.pair_lengths.side(side)
        inside = lengths <= end
        bars, _ = np.histogram(lengths[inside], edges, weights=sentences[inside])
        found = statistics["lengths"]
        longest = max(longest, found["longest"])
        label = f"{language}: mean {found['mean']:.1f}, median {found['median']:,}, longest {found['longest']:,}"
        axes.stairs(bars, edges, color=_STYLES[side]["color"], fill=True, alpha=0.2)
        axes.stairs(bars, edges, label=label, **_STYLES[side])
    title = "Lengths" + (f" (up to {end:,}, the 99th percentile)" if longest > end else "")
    count = "sentences" if width == 1 else f"sentences per {width:,} lengths"
    axes.set(title=title, xlabel="tokens per sentence", ylabel=count, xlim=(-0.5, edges[-1]))
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_ylim(0, axes.get_ylim()[1] * 1.15)  # room for the legend
    axes.legend(loc="upper right", frameon=False)


def _draw_joint(axes: Axes, inspection: Inspection, end: int) -> None:
    """Draws the counts of pairs of lengths up to `end`, in logarithmic colours."""
    from matplotlib.colors import LogNorm
    from matplotlib.ticker import LogLocator, NullLocator

    source, target, counts = inspection.pair_lengths
    shown, edges = (source <= end) & (target <= end), _edges(end, _CELLS)
    image, _, _ = np.histogram2d(target[shown], source[shown], edges, weights=counts[shown])
    drawn = axes.imshow(
        np.ma.masked_equal(image, 0),
        origin="lower",
        extent=(-0.5, edges[-1], -0.5, edges[-1]),
        norm=LogNorm(vmin=1, vmax=max(2, int(image.max()))),
        cmap="viridis",
        interpolation="nearest",
    )
    assert axes.figure is not None
    scale = axes.figure.colorbar(drawn, ax=axes, label="pairs", shrink=0.9, ticks=LogLocator(), format="{x:,.0f}")
    scale.ax.yaxis.set_minor_locator(NullLocator())
    if (ratio := inspection.shown["ratio"]["overall"]) is not None:
        axes.plot([0, end], [0, end * ratio], color="0.35", linewidth=1, label=f"ratio {ratio:.2f}")
        axes.legend(loc="upper left", frameon=False)
    xlabel, ylabel = (f"tokens, {language}" for language in inspection.data.languages)
    axes.set(title="Lengths of pairs", xlabel=xlabel, ylabel=ylabel, xlim=(-0.5, end), ylim=(-0.5, end))


def _draw_coverage(axes: Axes, inspection: Inspection) -> None:
    """Draws the share of the training tokens that the most frequent types make up."""
    from matplotlib.ticker import NullFormatter

    for side, (language, counts) in enumerate(inspection.train_counts.items()):
        frequencies = descending_frequencies(counts)
        if len(frequencies):
            share = 100 * np.cumsum(frequencies) / frequencies.sum()
            places = np.unique(np.geomspace(1, len(share), _POINTS).round().astype(np.int64))
            label = f"{language}: {len(frequencies):,} types in train"
            axes.plot(places, share[places - 1], label=label, **_STYLES[side])
    axes.set(title="Coverage of train", xlabel="most frequent types", ylabel="% of the tokens", ylim=(0, 101))
    if not axes.lines:
        axes.text(0.5, 0.5, "no training text in this folder", transform=axes.transAxes, ha="center")
        return
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(color="0.9")
    axes.legend(loc="lower right", frameon=False)
