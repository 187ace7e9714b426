from __future__ import annotations

import pytest

from rskip.generation import SearchOptions


@pytest.mark.parametrize(
    ("kind", "alpha", "length", "expected"),
    [
        ("fairseq", 1, 7, 7),
        ("fairseq", 0.5, 16, 4),
        ("fairseq", 0, 12, 1),
        ("fairseq", -1, 4, 0.25),
        ("gnmt", 1, 1, 1),
        ("gnmt", 1, 7, 2),
        ("gnmt", 2, 13, 9),
        ("gnmt", 0, 13, 1),
        ("gnmt", 0.5, 19, 2),
    ],
)
def test_what_a_log_probability_is_divided_by(kind, alpha, length, expected):
    options = SearchOptions(length_penalty_kind=kind, length_penalty=alpha)
    assert options.penalty(length) == pytest.approx(expected)
    assert options.penalty(1) == pytest.approx(1)
