"""Our dropout drops the right share, scales the rest, and is repeatable."""

from __future__ import annotations

import pytest
import torch

from rskip.transformer.dropout import Dropout


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("p", [0.1, 0.3, 0.5])
def test_share_and_scale(p, dtype):
    torch.manual_seed(0)
    x = torch.full((1000, 1003), 2.0, dtype=dtype)
    y = Dropout(p)(x)
    kept = y != 0
    assert kept.float().mean().item() == pytest.approx(1 - p, abs=3 * (p * (1 - p) / x.numel()) ** 0.5 + 2**-16)
    assert torch.equal(y[kept], torch.full_like(y[kept], 1).mul(1 / (1 - p)).mul(2))


def test_neighbours_that_share_a_draw_are_independent():
    torch.manual_seed(0)
    dropped = (Dropout(0.5)(torch.ones(400_000)) == 0).double().view(-1, 4)
    correlation = torch.corrcoef(dropped.T) - torch.eye(4)
    assert correlation.abs().max() < 0.015


def test_same_seed_same_mask_and_other_draws_differ():
    x, dropout = torch.ones(1000), Dropout(0.5)
    torch.manual_seed(5)
    first, second = dropout(x), dropout(x)
    torch.manual_seed(5)
    assert torch.equal(dropout(x), first) and not torch.equal(first, second)
