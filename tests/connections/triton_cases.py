"""Triton's kernels against double precision. test_triton_kernels.py runs this file with Triton's interpreter, which
must be on before Triton is imported; tests/gpu/test_kernels.py runs the cases on a GPU."""

from __future__ import annotations

import copy
from unittest.mock import patch

import pytest
import torch

from rskip.connections import stream_kernels
from tests.connections.test_kernels import Model, computed

SPECS = [
    "mhc:iterations=3", "mhc+rms:residual=identity,gate_eps=0.01", "mhc:streams=2,iterations=1,magnitude=1.5",
    "mhc:streams=8,iterations=2,sinkhorn_eps=0.01", "mhc_lite", "mhc_lite+rms:streams=2", "hyper",
    "hyper+rms:streams=8", "frac", "frac+rms:parts=2", "frac+rms:parts=8", "attnres", "attnres+rms",
]  # fmt: skip
# of y, and of gradients, as a part of the largest
BOUNDS = {torch.float32: (1e-6, 1e-5), torch.float16: (4e-3, 1e-2), torch.bfloat16: (3e-2, 8e-2)}


def small(spec, features):
    return Model(spec, features, layers=2 if spec.startswith("attnres") else 1)


def check(spec, shape, dtype, device="cpu", scale=1.0):
    """Values and all gradients of two or four blocks are those of double precision."""
    model = small(spec, shape[-1]).to(dtype)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(2)).to(dtype)  # with 1 a gradient cancels
    expected = computed(copy.deepcopy(model).double(), x.double(), scale)
    triton, depth = stream_kernels.find_triton(), spec.startswith("attnres")
    module, name = (triton.depth, "attend_gradient") if depth else (triton.streams, "read_gradient")
    with patch.object(module, name, wraps=getattr(module, name)) as kernel:
        found = computed(model.to(device), x.to(device), scale)
    assert kernel.call_count == (4 if depth else 2)  # attnres: not for the first branch, and for the exit
    names = ["y", "x", *(name for name, _ in model.named_parameters())]
    largest = max(each.abs().max() for each in expected[1:])
    for name, ours, exact in zip(names, found, expected, strict=True):
        assert ours.dtype == dtype
        bound = BOUNDS[dtype][name != "y"] * max(exact.abs().max(), 0.1 * largest)
        assert (ours.cpu().double() - exact).abs().max() <= bound, name


@pytest.mark.parametrize("spec", SPECS)
def test_float32_with_large_gradients(spec):
    check(spec, (3, 24) if "8" in spec else (2, 5, 40), torch.float32, scale=1e4)


@pytest.mark.parametrize("spec", ["mhc:iterations=2", "mhc_lite", "hyper", "frac+rms", "attnres"])
def test_float16(spec):
    check(spec, (4, 24), torch.float16)


@pytest.mark.parametrize("spec", ["mhc:residual=identity", "attnres"])
def test_a_strided_input(spec):
    model, x = small(spec, 24), torch.randn(24, 2, 3)
    contiguous = computed(model, x.permute(2, 1, 0).contiguous())
    model.zero_grad()
    for ours, known in zip(computed(model, x.permute(2, 1, 0)), contiguous, strict=True):
        assert torch.equal(ours, known)
    assert model(x.permute(2, 1, 0)[:0]).shape == (0, 2, 24)
