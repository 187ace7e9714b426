"""Plots an inspection: lengths of both sides, and coverage of the vocabulary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rskip.corpora.inspection.inspection import Inspection
from rskip.extras import extra
from rskip.files.plot import plot_file

with extra("translation", what="a corpus of text"):
    import numpy as np

# colours that colour-blind people can distinguish (Okabe and Ito)
_STYLES: tuple[dict[str, Any], ...] = ({"color": "#0072b2", "linestyle": "-"}, {"color": "#d55e00", "linestyle": "--"})
_BARS, _POINTS = 100, 2000


def draw(inspection: Inspection, path: Path) -> None:
    """Writes the plot as PNG or SVG, by the file's name. The same inspection and matplotlib give the same bytes.

    :raises ValueError: as `check_plot`, or there is nothing to draw.
    """
    data, statistics, sentences = inspection.data, inspection.statistics, inspection.shown["sentences"]
    shown = statistics["shown_split"]
    if not sentences:
        raise ValueError(f"{data.path}: {shown} has no sentences to plot")
    name = statistics["corpus"]["name"] if statistics["corpus"] else data.path.resolve().name
    sides = {language: side["lengths"] for language, side in inspection.shown["sides"].items()}
    end = max(1, *(side["percentiles"]["99"] for side in sides.values()))
    edges = np.arange(0, end + 2, -(-(end + 1) // _BARS)) - 0.5
    with plot_file(path, figsize=(10, 4.8), layout="constrained") as figure:
        histograms, coverage = figure.subplots(1, 2)
        figure.suptitle(f"{name} ({' → '.join(data.languages)}), {shown}: {sentences:,} pairs")
        histograms.set(title=f"Lengths up to {end:,} (99th percentile)", xlabel="tokens per sentence")
        histograms.set(ylabel="sentences")
        coverage.set(title="Coverage of train", xlabel="most frequent types", ylabel="% of the tokens", ylim=(0, 101))
        coverage.set_xscale("log")
        for style, (language, found) in zip(_STYLES, sides.items(), strict=True):
            lengths, counts = [*map(int, found["histogram"])], [*found["histogram"].values()]
            bars, _ = np.histogram(lengths, edges, weights=counts)
            label = f"{language}: mean {found['mean']:.1f}, median {found['median']:,}, longest {found['longest']:,}"
            histograms.stairs(bars, edges, label=label, **style)
        for style, (language, frequencies) in zip(_STYLES, inspection.frequencies.items(), strict=False):
            if len(frequencies):
                share = 100 * np.cumsum(frequencies) / frequencies.sum()
                places = np.unique(np.geomspace(1, len(share), _POINTS).round().astype(np.int64))
                coverage.plot(places, share[places - 1], label=f"{language}: {len(share):,} types in train", **style)
        for axes in (histograms, coverage):
            axes.xaxis.set_major_formatter("{x:,.0f}")
            if axes.get_legend_handles_labels()[0]:
                axes.legend(loc="best", frameon=False)
