"""The style of figures, and the words of their axes, titles and legends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rskip.analysis.charts import MEAN

if TYPE_CHECKING:
    from matplotlib.axis import Axis

WIDTH = 7.0  # inches, the width of a page's text
STYLE = {
    "font.size": 8.5,
    "axes.titlesize": 8.5,
    "axes.labelsize": 8.5,
    "legend.fontsize": 8,
    "figure.titlesize": 9.5,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.edgecolor": "0.3",
    "axes.grid": True,
    "grid.color": "0.92",
    "grid.linewidth": 0.6,
    "xtick.color": "0.3",
    "ytick.color": "0.3",
    "xtick.labelcolor": "black",
    "ytick.labelcolor": "black",
    "lines.linewidth": 1.3,
    "lines.markersize": 3.6,
    "legend.frameon": False,
    "legend.handlelength": 2.6,
}
# Okabe and Ito's colours for the colour-blind, without their yellow, which is faint on white
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#000000", "#56b4e9", "#e69f00", "#7f7f7f")
DASHES = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*")
COLOUR_MAP = "viridis"
DECADE = 10.0  # if values span a larger factor, the scale is logarithmic

RATIO = "x : F(x), "
# Axis labels, by quantity.
_WORDS = {
    "x_rms": "RMS of x",
    "f_rms": "RMS of F(x)",
    "y_rms": "RMS of y",
    "similarity": "cosine between positions of y",
    "gradient": "gradient norm ‖∂L/∂y‖",
    "alpha": "α",
    "beta": "β",
    "gamma": "(1−α)(1−β)",
    "transform": "transform gate T",
    "coefficient": RATIO + "by coefficient",
    "norm": RATIO + "by norm",
    "contribution": RATIO + "by contribution",
    "scale": "coefficient of x",
    "stream_similarity": "cosine between streams",
    "effective_rank": "effective rank of the streams",
    "row_gain": "row gain of H",
    "column_gain": "column gain of H",
    "from_stochastic": "distance of H from doubly stochastic",
    "from_identity": "‖H − I‖",
    "weight": "weight in a block's input",
    "source": "source: 0 the input, else the block",
    "block": "block",
    "update": "updates",
    "epoch": "epochs",
    "bin": "value",
    "share": "share of positions",
    "self_attn": "self-attention",
    "encoder_attn": "encoder attention",
    "ffn": "feed-forward",
    "layer1": "stage 1",
    "layer2": "stage 2",
    "layer3": "stage 3",
    "layer4": "stage 4",
    "loss": "training loss",
    "gradient_norm": "norm of the whole gradient",
    "train_loss": "training loss",
    "valid_loss": "validation loss",
    "test_loss": "test loss",
    "train_error": "training error, %",
    "test_error": "test error, %",
    "valid_ppl": "validation perplexity",
    "valid_cider": "validation CIDEr",
    "time": "time of a step, ×",
    "time_of_training": "time of the training, × that of the baseline",
    "loss_second_half": "loss on the second half of the validation text",
    "calls": "operator calls, ×",
    "memory": "memory kept, ×",
    "cosine": "cosine, untrained",
}


def named(key: str, value: Any) -> str:
    return f"{key} {value}" if key in ("depth", "block", "seed") and value != MEAN else word(value)


def word(value: Any) -> str:
    return _WORDS.get(value, str(value))


def label_decades(axis: Axis, values: Sequence[float]) -> None:
    """Sets the ticks of a logarithmic axis. If it shows few decades, there are more ticks, with plain numbers."""
    from matplotlib.ticker import LogLocator, NullLocator

    low, high = min(values), max(values)
    if high < 1000 * low:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    if low > 1e-4 and high < 1e5:
        axis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_minor_locator(NullLocator())
