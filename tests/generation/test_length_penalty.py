from __future__ import annotations

import pytest
import torch

from rskip.generation.length_penalty import build_length_penalty


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
def test_numbers_and_tensors(kind, alpha, length, expected):
    penalty = build_length_penalty(kind, alpha)
    assert penalty(length) == pytest.approx(expected)
    lengths = torch.tensor([[1, length], [length, 3]])
    assert penalty(lengths)[1, 0].item() == pytest.approx(expected)
    assert penalty(lengths)[0, 0].item() == pytest.approx(1)


def test_unknown_kind():
    with pytest.raises(ValueError, match="'opennmt': expected fairseq or gnmt"):
        build_length_penalty("opennmt", 1.0)
