"""SAS in half precision on a GPU: one function with gradients by hand, in place of the formula written out."""

from __future__ import annotations

import copy

import pytest
import torch

from rskip.connections import build_connection
from rskip.connections.sas import SASConnection, SASFunction

FEATURES = 32
FUNCTIONS = SASConnection.forward, SASConnection._combined


def outcome(connection, function, *tensors):
    """y and all gradients of a random direction of it."""
    connection = connection.to(tensors[0].dtype)
    x, f = (each.clone().requires_grad_() for each in tensors[:2])
    y = function(connection, x, f)
    y.backward(tensors[2])
    return [y.detach(), x.grad, f.grad, *(each.grad for each in connection.parameters())]


@pytest.fixture
def drawn():
    torch.manual_seed(0)
    connection = build_connection("sas:alpha_bias=1", FEATURES)
    for each in connection.parameters():
        each.data += 0.1 * torch.randn_like(each)
    return connection, torch.randn(3, 5, 40, FEATURES)


def test_it_is_the_formula(drawn):
    connection, tensors = drawn
    expected, computed = (
        outcome(copy.deepcopy(connection), function, *tensors.double()) for function in FUNCTIONS
    )
    for one, other in zip(expected, computed, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-6, atol=1e-6)  # its factors are float32


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_errors_are_at_most_twice_those_of_the_formula(drawn, dtype):
    connection, tensors = drawn
    connection, tensors = connection.to(dtype), tensors.to(dtype)
    exact = outcome(copy.deepcopy(connection), SASConnection.forward, *tensors.double())
    plain, computed = (
        outcome(copy.deepcopy(connection), function, *tensors) for function in FUNCTIONS
    )
    errors = [
        torch.tensor([(each - true).norm() for each, true in zip(found, exact, strict=True)])
        for found in (plain, computed)
    ]
    large = torch.tensor([each.numel() > FEATURES for each in exact])  # of a few sums, errors are chance: all at once
    assert (errors[1][large] <= 2 * errors[0][large]).all()
    assert errors[1][~large].norm() <= 2 * errors[0][~large].norm()


def test_a_nearly_open_gate_leaves_the_normalised_term():
    """1 - σ(8) is 3.4e-4, and 0 for a σ(8) in bfloat16."""
    connection = build_connection("sas:alpha_bias=8,beta_bias=-40", FEATURES)
    connection.reset_parameters(torch.nn.init.zeros_)
    x = (torch.linspace(1, 4, FEATURES) * 2.0**-12).bfloat16()[None]
    exact = copy.deepcopy(connection).double()(x.double(), 0 * x.double())
    y = connection.bfloat16()._combined(x, 0 * x)
    assert (exact - x.double()).abs().max() > 0.01 * x.abs().max(), "a term that counts"
    torch.testing.assert_close(y.double(), exact, rtol=2.0**-7, atol=4e-7)


def test_transforms_take_the_formula_and_gradients_of_gradients_are_refused():
    connection = build_connection("sas", FEATURES).bfloat16()
    x = torch.randn(3, 2, FEATURES, dtype=torch.bfloat16, requires_grad=True)
    meta = connection.to_empty(device="meta")
    assert torch.func.vmap(meta)(x.to("meta"), x.to("meta")).shape == x.shape
    y = build_connection("sas", FEATURES).bfloat16()._combined(x, 2 * x)
    with pytest.raises(RuntimeError, match="no gradients of gradients"):
        torch.autograd.grad(y.sum(), x, create_graph=True)


@torch.no_grad()
def test_it_is_taken_on_a_gpu_unless_a_module_is_watched(emulated_cuda, monkeypatch):
    taken = []
    apply = SASFunction.apply
    monkeypatch.setattr(SASFunction, "apply", lambda *inputs: taken.append(1) or apply(*inputs))
    connection = build_connection("sas", 8)
    x, f = torch.randn(2, 3, 8)
    connection(x, f), connection.bfloat16()(x.bfloat16(), f.bfloat16())
    assert not taken
    connection, x, f = connection.cuda(), x.bfloat16().cuda(), f.bfloat16().cuda()
    y = connection(x, f)
    assert len(taken) == 1
    hook = connection.alpha_gate.register_forward_hook(lambda *_: None)
    torch.testing.assert_close(connection(x, f).cpu(), y.cpu(), rtol=0.02, atol=0.02)
    hook.remove()
    connection.float()(x.float(), f.float())
    assert len(taken) == 1
