"""What a hypothesis' log-probability is divided by, so that hypotheses of different lengths compare."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from torch import Tensor

Length = TypeVar("Length", float, Tensor)


def _fairseq(length: Length, alpha: float) -> Length:
    return length**alpha


def _gnmt(length: Length, alpha: float) -> Length:
    return ((5 + length) / 6) ** alpha


LENGTH_PENALTIES = {"fairseq": _fairseq, "gnmt": _gnmt}


def build_length_penalty(kind: str, alpha: float) -> Callable[[Length], Length]:
    """The penalty of n tokens, the end included, n a number or a tensor of numbers.

    "fairseq": n^α, which makes α = 1 the mean log-probability of a token. "gnmt": ((5+n)/6)^α (Wu et al. 2016,
    Eq. 14), which is what papers mean that give 0.6. α = 0 is no penalty in both. Raises `ValueError` for another kind.
    """
    if kind not in tuple(LENGTH_PENALTIES):
        raise ValueError(f"length penalty {kind!r}: expected {' or '.join(LENGTH_PENALTIES)}")
    penalty = LENGTH_PENALTIES[kind]
    return lambda length: penalty(length, float(alpha))
