"""The search over the vocabulary takes no shortcut that shows."""

from __future__ import annotations

import math

import pytest
import torch

from rskip.generation.candidates import best_candidates, log_normaliser


@pytest.mark.parametrize("vocabulary", [7, 640, 10_000, 10_007, 10_015])
@pytest.mark.parametrize("beams", [1, 5])
@pytest.mark.parametrize("kind", ["drawn", "peaked", "ties", "forced"])
def test_candidates_are_the_best_of_all_beams(vocabulary, beams, kind):
    torch.manual_seed(vocabulary + beams)
    logits = torch.randn(6, beams, vocabulary)
    if kind == "peaked":  # the best are neighbours: in one column, or at the vocabulary's end
        logits[:3, :, : vocabulary // 2 : max(vocabulary // 16, 1)] += 20
        logits[3:, :, -6:] += 20
    elif kind == "ties":
        logits = logits.mul(2).round()
    elif kind == "forced":
        logits[:, :, 1:] = -math.inf
    offsets = torch.randn(6, beams)
    offsets[0, -1] = -math.inf
    count = min(2 * beams, vocabulary - 1)
    candidates = best_candidates(logits, offsets, count)
    totals = logits + offsets[:, :, None]
    expected = totals.view(6, -1).sort(descending=True)[0][:, :count]
    assert torch.equal(candidates.scores, expected)
    rows = torch.arange(6)[:, None]
    assert torch.equal(totals[rows, candidates.beams, candidates.tokens], expected)
    places = candidates.beams * vocabulary + candidates.tokens
    assert all(len(set(row)) == count for row in places.tolist())


@pytest.mark.parametrize("shift", [0.0, 80.0, -60.0, 500.0, -500.0])
@pytest.mark.parametrize("spread", [0.1, 5.0, 100.0])
def test_normaliser_is_log_sum_exp_at_any_size(shift, spread):
    torch.manual_seed(1)
    logits = torch.randn(3, 2, 1000) * spread + shift
    logits[0, 0, :999] = -math.inf
    before = logits.clone()
    normaliser = log_normaliser(logits, torch.empty(2 * logits.numel()))
    torch.testing.assert_close(normaliser, logits.double().logsumexp(-1).float(), rtol=1e-6, atol=2e-6)
    assert torch.equal(logits, before)
