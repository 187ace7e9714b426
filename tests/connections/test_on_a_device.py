"""Connections on another device than the CPU: the same numbers, no tensor left on the CPU, no wait."""

from __future__ import annotations

import copy

import pytest
import torch

from rskip.connections import build_connection

TEXT = [
    "2xskip", "2xskip+ln", "2xskip+rms", "1xskip+ln:branch_scale=2", "2rskip+ln", "wskip+ln", "sas", "sas+rms",
    "sas:gamma=free", "sas:gate=single", "sas:norm_term=false", "highway", "highway:gate=full", "prenorm+ln",
]  # fmt: skip
IMAGES = ["2rskip+bn", "2rskip+gn1", "2rskip+ln", "sas+bn", "highway"]


def outcome(connection, x, f):
    """y, and the gradients of its square."""
    x, f = x.detach().requires_grad_(), f.detach().requires_grad_()
    y = connection(x, connection.branch_input(x) * f)
    y.square().sum().backward()
    return [y, x.grad, f.grad, *(each.grad for each in connection.parameters())]


@pytest.mark.parametrize(
    ("spec", "shape", "feature_dim"),
    [*((each, (2, 3, 8), -1) for each in TEXT), *((each, (2, 8, 3, 3), 1) for each in IMAGES)],
)
def test_a_connection_computes_there(spec, shape, feature_dim, emulated_cuda):
    torch.manual_seed(0)
    connection = build_connection(spec, 8, feature_dim=feature_dim)
    on_device = copy.deepcopy(connection).to("cuda")
    x, f = torch.randn(2, *shape)
    expected = outcome(connection, x, f)
    x, f = x.to("cuda"), f.to("cuda")
    emulated_cuda.clear()
    computed = outcome(on_device, x, f)
    assert not emulated_cuda.synchronisations
    assert all(each.device.type == "cuda" for each in computed)
    for here, there in zip(expected, computed, strict=True):
        torch.testing.assert_close(there.cpu(), here, rtol=1e-5, atol=1e-5)


def test_what_lies_elsewhere_is_refused(emulated_cuda):
    connection = build_connection("2rskip+ln", 8).to("cuda")
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device: add"):
        connection(torch.zeros(2, 8, device="cuda"), torch.zeros(2, 8))
