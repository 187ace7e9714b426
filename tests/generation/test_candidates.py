"""The candidates of a step are the best continuations of all beams."""

from __future__ import annotations

import math

import pytest
import torch

from rskip.generation.candidates import Scan


@pytest.mark.parametrize("beams", [1, 5])
@pytest.mark.parametrize("forced", [False, True])
def test_candidates_are_the_best_of_all_beams(beams, forced):
    torch.manual_seed(beams)
    logits, offsets = torch.randn(6, beams, 640), torch.randn(6, beams)
    expected = logits.double().logsumexp(-1).float()
    scan = Scan(logits)
    torch.testing.assert_close(scan.normaliser, expected, rtol=1e-6, atol=2e-6)
    if forced:  # after the scan, as the search does
        logits[:, :, 1:] = -math.inf
    offsets[0, -1] = -math.inf
    found = scan.best(offsets, 2 * beams)
    totals = logits + offsets[:, :, None]
    assert torch.equal(found.scores, totals.view(6, -1).sort(descending=True)[0][:, : 2 * beams])
    assert torch.equal(totals[torch.arange(6)[:, None], found.beams, found.tokens], found.scores)
