"""Triton's kernels on a GPU, against double precision and against themselves."""

from __future__ import annotations

import pytest
import torch

from rskip.connections import stream_kernels
from tests.connections.test_kernels import Model, computed
from tests.connections.triton_cases import BOUNDS, SPECS, check

pytest.importorskip("triton")


@pytest.fixture(autouse=True)
def kernels(monkeypatch):
    monkeypatch.setattr(stream_kernels, "on_gpu", True)


@pytest.mark.parametrize("dtype", BOUNDS, ids=str)
@pytest.mark.parametrize("spec", [*SPECS, "mhc", "mhc:streams=8"])
def test_values_and_gradients(spec, dtype, gpu):
    check(spec, (3, 70, 200), dtype, gpu)


@pytest.mark.parametrize(("spec", "features"), [("mhc", 8192), ("hyper", 4096), ("frac", 8192), ("attnres", 8192)])
def test_many_features_and_large_gradients(spec, features, gpu):
    check(spec, (100, features), torch.float32, gpu, scale=1e4)


@pytest.mark.parametrize("spec", ["mhc", "mhc_lite", "hyper", "frac", "attnres"])
def test_every_run_gives_the_same_bits(spec, gpu):
    model, x = Model(spec, 512).to(gpu).bfloat16(), torch.randn(8, 512, 512, device=gpu, dtype=torch.bfloat16)
    first = computed(model, x)
    model.zero_grad()
    assert all(torch.equal(*pair) for pair in zip(computed(model, x), first, strict=True))


@pytest.mark.parametrize("spec", ["mhc", "hyper", "frac", "attnres"])
def test_under_autocast(spec, gpu):
    model, x = Model(spec, 256).to(gpu), torch.randn(64, 256, device=gpu)
    exact = computed(model, x)
    model.zero_grad()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        found = computed(model, x)
    for ours, known in zip(found, exact, strict=True):
        assert ours.dtype == known.dtype
        assert (ours - known).abs().max() <= 0.1 * max(each.abs().max() for each in exact)
