"""Streams and depth attention equal those of transformers' models of 2026, in float64, for values and gradients."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rskip.connections import HOST_NEEDS, Place, build_connection, build_stack_connection

C, N = 6, 4
CONFIG = SimpleNamespace(
    hc_mult=N, hc_count=N, hc_sinkhorn_iters=20, hc_eps=1e-3, hc_magnitude=1.5, hc_lowrank=3, rms_norm_eps=1e-4,
    hidden_size=C, _attn_implementation="sdpa",
)  # fmt: skip


@pytest.fixture(autouse=True)
def in_float64(monkeypatch):
    monkeypatch.setattr(Tensor, "float", Tensor.double)  # their code converts to float32


def of_transformers(model: str, name: str, *args: Any) -> nn.Module:
    module = pytest.importorskip(f"transformers.models.{model}.modeling_{model}", reason="needs transformers 5.24")
    built: nn.Module = getattr(importlib.import_module(module.__name__), name)(CONFIG, *args).double()
    generator = torch.Generator().manual_seed(1)
    for parameter in built.parameters():
        nn.init.normal_(parameter, std=0.7, generator=generator)
    return built


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64).requires_grad_()


def ours(spec: str, eps: float = CONFIG.rms_norm_eps) -> Any:
    place = Place("decoder", "self_attn", 3, 4, 2, 2)
    connection: Any = build_connection(spec, C, place=place, eps=eps, host_supplies=HOST_NEEDS).double()
    connection.norm = nn.Identity()
    return connection


def same(found: list[Tensor], expected: list[Tensor], ours: list[Tensor], theirs: list[Tensor]) -> None:
    """Values, and gradients of variables in the same order."""
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
    weights = [torch.randn(each.shape, dtype=each.dtype) for each in found]
    gradients = [
        torch.autograd.grad(sum((w * each).sum() for w, each in zip(weights, values, strict=True)), variables)
        for values, variables in ((found, ours), (expected, theirs))
    ]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one.reshape(other.shape), other, rtol=1e-10, atol=1e-10)


def copied(parameters: list[Tensor], values: list[Tensor]) -> None:
    with torch.no_grad():
        for parameter, value in zip(parameters, values, strict=True):
            parameter.copy_(value.view_as(parameter))


@pytest.mark.parametrize(
    ("model", "name", "spec", "mixes"),
    [
        ("deepseek_v4", "DeepseekV4HyperConnection", "mhc+rms:gate_eps=1e-3,sinkhorn_eps=1e-3", True),
        ("glm5_next", "Glm5NextTextHyperConnection", "mhc+rms:gate_eps=1e-3,sinkhorn_eps=1e-3", True),
        ("hy_v4", "HYV4HyperConnection", "mhc+rms:gate_eps=1e-3,magnitude=1.5,residual=identity", False),
    ],
)
def test_a_block_with_streams(model, name, spec, mixes):
    theirs, connection = of_transformers(model, name), ours(spec)
    own, other = [connection.mixing, connection.bias, connection.scale], [theirs.fn, theirs.base, theirs.scale]
    copied(own, other)
    h, f = drawn(2, 3, N, C), drawn(2, 3, C)
    post, *comb, given = theirs(h)
    expected = post.unsqueeze(-1) * f.unsqueeze(-2) + (comb[0].mT @ h if mixes else h)
    found, kept = connection.before(h)
    same([found, connection.after(kept, f)], [given, expected], [h, f, *own], [h, f, *other])


@pytest.mark.parametrize(
    ("model", "name", "spec"),
    [
        ("deepseek_v4", "DeepseekV4HyperHead", "mhc+rms:exit=head,gate_eps=1e-3"),
        ("hy_v4", "HYV4HyperHead", "mhc+rms:exit=head,gate_eps=1e-3,residual=identity"),
    ],
)
def test_the_exit_head(model, name, spec):
    theirs = of_transformers(model, name)
    stack: Any = build_stack_connection(spec, C, eps=CONFIG.rms_norm_eps).double()
    own, other = [stack.mixing, stack.bias, stack.scale], [theirs.hc_fn, theirs.hc_base, theirs.hc_scale]
    copied(own, other)
    h = drawn(2, 3, N, C)
    same([stack.leave(h)], [theirs(h)], [h, *own], [h, *other])


def test_a_gated_residual_and_its_exit():
    spec = "gated_residual:rank=3"
    theirs = of_transformers("qwen4_exp", "Qwen4ExpTextGatedResidual")
    connection, stack = ours(spec), build_stack_connection(spec, C, eps=CONFIG.rms_norm_eps).double()
    other = list(theirs.parameters())  # their gain is 1 + weight
    for each, count in ((connection, 4), (stack, 3)):
        copied([*each.parameters()], [other[0] + 1, *other[1:count]])
    h, f = drawn(2, 3, N, C), drawn(2, 3, C)
    given, wide, gates = theirs(h.flatten(-2))
    expected = wide.unflatten(-1, (N, C)) + f.unsqueeze(-2) * gates.unsqueeze(-1)
    found, kept = connection.before(h)
    same([found, connection.after(kept, f)], [given, expected], [h, f, *connection.parameters()], [h, f, *other])
    theirs.block_inject_weight = None
    same([stack.leave(h)], [theirs(h.flatten(-2))], [h, *stack.parameters()], [h, *other[:3]])


@pytest.mark.parametrize("queries", [1, 3])
def test_attention_over_depth(queries):
    theirs = of_transformers("inkling2", "Inkling2BlockAttentionResidual", queries)
    connection = ours(f"attnres:layers=1,queries={queries},values=rms", theirs.norm.eps)
    attention = connection.attention
    copied([attention.query], [theirs.query / C**0.5])  # their scores are divided by √C
    values = drawn(2, 5, connection.values, C)
    expected = list(theirs(values[..., :-1, :], values[..., -1, :]))
    found = attention(tuple(values.unbind(-2)))
    of_ours = list(found.unbind(-2)) if queries == 3 else [found]
    for one, other in zip(of_ours, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
    weights = torch.randn(len(expected), 2, 5, C, dtype=torch.float64)
    gradients: list[Any] = [
        torch.autograd.grad((weights * torch.stack(each)).sum(), [values, query])
        for each, query in ((of_ours, attention.query), (expected, theirs.query))
    ]
    torch.testing.assert_close(gradients[0][0], gradients[1][0], rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(gradients[0][1] / C**0.5, gradients[1][1], rtol=1e-10, atol=1e-10)


def test_single_pass_reads_with_the_former_blocks_gates():
    """DeepSeek V4.1: the coefficients are V4's, but the next block reads with α."""
    theirs = of_transformers("deepseek_v4", "DeepseekV4HyperConnection")
    connection = ours("mhc+rms:gate_eps=1e-3,reads=previous,sinkhorn_eps=1e-3")
    copied([connection.mixing, connection.bias, connection.scale], [theirs.fn, theirs.base, theirs.scale])
    h, f, alpha = drawn(2, 3, N, C), drawn(2, 3, C), drawn(2, 3, N)
    post, comb, own_reading = theirs(h)
    found, kept = connection.before((h, alpha))
    new, passed = connection.after(kept, f)
    expected = post.unsqueeze(-1) * f.unsqueeze(-2) + comb.mT @ h
    readings = [(alpha.unsqueeze(-1) * h).sum(-2), (passed.unsqueeze(-1) * h).sum(-2)]
    for one, other in zip([new, found, readings[1]], [expected, readings[0], own_reading], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
