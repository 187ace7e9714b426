"""The analyses of `rskip analyse`, and how tables and charts show each. Imports no torch, since the help lists them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "blocks", "histogram", "updates", "heat_map", "sources", "curves", "dots", "cells", "times", "differences"
]


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """How one kind of measurement is shown.

    :param charts: kinds of charts, the default first.
    :param values: columns with values. A chart shows other columns only if its view names them.
    :param named_by: column that names the quantity, if each row has one value.
    :param first_and_last: columns for a table of each stage's first and last block. Empty: the table has every block.
    :param streams: whether connections may pass on more than x.
    """

    charts: tuple[Kind, ...] = ("blocks",)
    values: tuple[str, ...] = ()
    named_by: str = ""
    first_and_last: tuple[str, ...] = ()
    streams: bool = False


STREAMS = ("stream_similarity", "effective_rank", "row_gain", "column_gain", "from_stochastic", "from_identity")

# For each name, analyses.py has a function of this name, which measures it.
ANALYSES: Mapping[str, Analysis] = {
    "signals": Analysis(values=("x_rms", "f_rms", "y_rms"), first_and_last=("y_rms", "f_rms", "similarity")),
    "gradients": Analysis(values=("gradient",), first_and_last=("gradient",)),
    "ratios": Analysis(values=("median",), named_by="definition"),
    "gates": Analysis(values=("mean",), named_by="gate", charts=("blocks", "histogram")),
    "streams": Analysis(values=STREAMS, streams=True),
    "depth": Analysis(charts=("sources",), streams=True),
}
DRAWN: Mapping[str, Analysis] = {  # also the measurements of a training
    **ANALYSES,
    "trace": Analysis(
        charts=("heat_map", "updates"), values=("x_rms", "f_rms", "y_rms", "gradient", "alpha", "beta", "gamma")
    ),
    "curves": Analysis(charts=("curves",)),
}
