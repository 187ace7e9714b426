"""The fast search over the vocabulary gives the same results as a simple one."""

from __future__ import annotations

import math
from itertools import product

import pytest
import torch

from rskip.cpu import find_library
from rskip.generation.candidates import NativeScan, Scan

needs_kernels = pytest.mark.skipif(find_library().library is None, reason="the kernels are not compiled here")


@pytest.mark.parametrize("kind", ["drawn", "peaked", "ties", "forced"])
@pytest.mark.parametrize(
    "way", ["PyTorch", pytest.param("float32", marks=needs_kernels), pytest.param("bfloat16", marks=needs_kernels)]
)
def test_candidates_are_the_best_of_all_beams(kind, way):
    for vocabulary, beams in product((7, 640, 10_000, 10_007, 10_015), (1, 5)):
        assert_best_of_all_beams(vocabulary, beams, kind, way)


def assert_best_of_all_beams(vocabulary, beams, kind, way):
    torch.manual_seed(vocabulary + beams)
    logits = torch.randn(6, beams, vocabulary)
    if way == "bfloat16":
        logits = logits.bfloat16()

    def scan():
        return Scan(logits) if way == "PyTorch" else NativeScan(logits, find_library().library)

    scanned = scan()
    if kind == "peaked":  # the best are neighbours: in one column, or at the vocabulary's end
        logits[:3, :, : vocabulary // 2 : max(vocabulary // 16, 1)] += 20
        logits[3:, :, -6:] += 20
    elif kind == "ties":
        logits.mul_(2).round_()
    if kind != "forced":
        scanned = scan()
    if kind == "forced":  # after the scan, as the search does
        logits[:, :, 1:] = -math.inf
    offsets = torch.randn(6, beams)
    offsets[0, -1] = -math.inf
    count = min(2 * beams, vocabulary - 1)
    candidates = scanned.best(offsets, count)
    totals = logits + offsets[:, :, None]
    expected = totals.view(6, -1).sort(descending=True)[0][:, :count]
    assert torch.equal(candidates.scores, expected)
    rows = torch.arange(6)[:, None]
    impossible = expected == -math.inf  # which ones doesn't matter
    found = totals[rows, candidates.beams, candidates.tokens].masked_fill(impossible, -math.inf)
    assert torch.equal(found, expected)
    places = (candidates.beams * vocabulary + candidates.tokens).masked_fill(impossible, -1)
    assert all(len(set(row) - {-1}) == count - row.count(-1) for row in places.tolist())


@pytest.mark.parametrize("way", ["PyTorch", pytest.param("kernels", marks=needs_kernels)])
def test_normaliser_is_log_sum_exp_at_any_size(way):
    for shift, spread in product((0.0, 80.0, -60.0, 500.0, -500.0), (0.1, 5.0, 100.0)):
        torch.manual_seed(1)
        logits = torch.randn(3, 2, 1000) * spread + shift
        logits[0, 0, :999] = -math.inf
        before = logits.clone()
        scan = Scan(logits) if way == "PyTorch" else NativeScan(logits, find_library().library)
        expected = logits.double().logsumexp(-1).float()
        torch.testing.assert_close(scan.normaliser, expected, rtol=1e-6, atol=2e-6, msg=f"{shift}, {spread}")
        assert torch.equal(logits, before)


@needs_kernels
def test_logits_that_are_no_numbers_give_no_scores():
    other_nans = torch.tensor([0x7FFFFFFF, 0x7F800001], dtype=torch.int32).view(torch.float32)  # a GPU's, and another
    for wrong in (math.nan, math.inf, *other_nans):
        logits = torch.zeros(2, 2, 300)
        logits[1, 1, 200] = wrong
        scan = NativeScan(logits, find_library().library)
        assert scan.best(-scan.normaliser, 4).scores.isnan().all(1).tolist() == [False, True]
