"""Compares residual connections in your model, on your data, in your time: `rskip.compare` and `rskip compare`."""

from rskip.comparison.compare import compare, compare_subject
from rskip.comparison.result import Comparison

__all__ = ["Comparison", "compare", "compare_subject"]
