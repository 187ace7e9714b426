"""Every connection in every type on a GPU, against float64 on the CPU."""

from __future__ import annotations

import copy

import pytest
import torch

from rskip.connections import build_connection

TEXT = [
    "2xskip", "1xskip+ln", "2xskip+ln", "2xskip+rms", "2rskip+ln", "3rskip+rms", "wskip+ln", "sas", "sas+rms",
    "sas:gamma=free", "sas:gate=single", "sas:norm_term=false", "sas:host=prenorm", "highway", "highway:gate=full",
    "highway:gate=shortcut", "prenorm+ln",
]  # fmt: skip
IMAGES = ["1xskip", "2xskip+bn", "2rskip+ln", "2rskip+bn", "2rskip+gn1", "sas", "sas+bn", "highway"]
CASES = [(spec, (4, 9, 64), -1) for spec in TEXT] + [(spec, (4, 64, 5, 5), 1) for spec in IMAGES]
# of the largest element: some roundings of the type that it is stored in
TOLERANCES = {torch.float64: 1e-11, torch.float32: 2e-5, torch.float16: 8e-3, torch.bfloat16: 6e-2}


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize(("spec", "shape", "feature_dim"), CASES)
def test_output_and_gradients(spec, shape, feature_dim, dtype, gpu):
    torch.manual_seed(0)
    connection = build_connection(spec, 64, feature_dim=feature_dim).to(dtype)
    x, f, direction = torch.randn(3, *shape).to(dtype)
    exact = outcome(copy.deepcopy(connection).double(), x.double(), f.double(), direction.double())
    found = outcome(connection.to(gpu), x.to(gpu), f.to(gpu), direction.to(gpu))
    for one, other in zip(exact, found, strict=True):
        assert other.device == gpu
        limit = TOLERANCES[dtype] * max(one.abs().max().item(), 1)
        torch.testing.assert_close(other.cpu().double(), one, rtol=0, atol=limit)


def outcome(connection, x, f, direction):
    """y, and the gradients in x, f and the parameters."""
    x, f = x.detach().requires_grad_(), f.detach().requires_grad_()
    y = connection(x, f)
    assert y.dtype == x.dtype
    y.backward(direction)
    return [y.detach(), x.grad, f.grad, *(each.grad for each in connection.parameters() if each.grad is not None)]
