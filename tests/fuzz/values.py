"""Values of wrong types or out of range, and the numbers of inputs to try."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

import hypothesis
from hypothesis import strategies as st

MORE = int(os.environ.get("RSKIP_FUZZ") or 0)


def given(*strategies: st.SearchStrategy[Any], share: int = 1) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Hypothesis' `given`: in `make test` the same few inputs each time, in `make fuzz` RSKIP_FUZZ other ones.

    :param share: of what takes long, one in so many.
    """
    settings = hypothesis.settings(
        max_examples=max((MORE or 30) // share, 1),
        derandomize=not MORE,
        database=hypothesis.settings.default.database if MORE else None,  # type: ignore[attr-defined]
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        return settings(hypothesis.given(*strategies)(test))

    return decorate


NUMBERS: list[Any] = [
    0, 1, -1, 2, 3, 1.5, -0.0, 0.5, True, False, 10**6, 2**31, 2**63, 10**20, 10**400, -(10**20), 1e9, 1e300, -1e300,
    1e-320, math.nan, math.inf, -math.inf,
]  # fmt: skip
TEXTS = [
    "", " ", "x", "8", "1e9", "-1", "nan", "en", "../x", "a\0b", "\n", "é", "\ud800", "--help", "x" * 5000, "2rskip+ln",
    "sas", "9999999rskip+ln", "cpu", "cuda:99", "[", "{", "%", "a/b", ".", "~", "#", "\u2028",
]  # fmt: skip
plain = st.sampled_from([None, *NUMBERS, *TEXTS]) | st.text(max_size=8) | st.integers() | st.floats()
values = st.recursive(
    plain,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3) | st.tuples(inner)
    ),
    max_leaves=5,
)


def deep(levels: int) -> list[Any]:
    """A list in a list in a list ..."""
    nested: list[Any] = []
    for _ in range(levels):
        nested = [nested]
    return nested
