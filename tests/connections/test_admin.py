"""Admin's profiling pass: exact values, and what it leaves out. test_families.py has the formula."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from rskip.connections import HOST_NEEDS, admin_profiling, build_connection, is_profiled

FEATURES = 6


class Blocks(nn.Module):
    """Blocks whose branch is tanh of a linear map."""

    def __init__(self, spec: str, count: int = 4) -> None:
        super().__init__()
        torch.manual_seed(0)
        built = (build_connection(spec, FEATURES, host_supplies=HOST_NEEDS) for _ in range(count))
        self.connections = nn.ModuleList(built)
        self.branches = nn.ModuleList(nn.Linear(FEATURES, FEATURES) for _ in range(count))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for connection, branch in zip(self.connections, self.branches, strict=True):
            x = connection(x, torch.tanh(branch(x)))
        return x


@torch.no_grad()
def profiled_by_hand(model: Blocks, x: torch.Tensor) -> list[float]:
    """The paper's code in float64: ω of each block, then the variances that make the next."""
    weights, squared = [], 1.0
    for branch in model.branches:
        weights.append(squared**0.5)
        f = torch.tanh(branch(x))
        squared = float((weights[-1] * x).var(correction=0) + f.var(correction=0))
        z = weights[-1] * x + f
        x = (z - z.mean(-1, keepdim=True)) / torch.sqrt(z.var(-1, correction=0, keepdim=True) + 1e-5)
    return weights


@pytest.fixture
def x() -> torch.Tensor:
    return 3 * torch.randn(2, 5, FEATURES, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def weights_of(model: Blocks) -> list[float]:
    assert all(torch.all(each.skip_weight == each.skip_weight[0]) for each in model.connections)
    return [each.skip_weight[0].item() for each in model.connections]


def test_it_sets_the_papers_weights_in_one_pass(x):
    model = Blocks("admin").double()
    assert not is_profiled(model)
    expected = profiled_by_hand(model, x)
    with admin_profiling(model):
        model(x)
    assert weights_of(model) == pytest.approx(expected, rel=1e-6)
    assert expected[0] == 1 and expected[1] > 2 and is_profiled(model)
    model(5 * x)
    assert weights_of(model) == pytest.approx(expected, rel=1e-6)  # outside the block nothing is set


def test_padding_is_left_out(x):
    positions = torch.tensor([[True] * 5, [True, True, False, False, False]])
    model, alone = Blocks("admin").double(), Blocks("admin").double()
    with admin_profiling(model, positions):
        model(torch.where(positions[..., None], x, 1e3))
    with admin_profiling(alone):
        alone(x[positions][None])
    assert weights_of(model) == pytest.approx(weights_of(alone), rel=1e-6)


def test_a_pass_that_is_none_is_refused_and_leaves_the_weights(x):
    model = Blocks("admin").double()
    padding = torch.zeros(2, 5, dtype=torch.bool)
    for positions, passes, message in (
        (None, lambda: (model(x), model(x)), "a block ran twice: run one forward pass of one encoder or decoder"),
        (None, lambda: None, "0 of 4 blocks ran: expected one forward pass of the whole stack"),
        (None, lambda: model(x * math.inf), "the variance of block 1 is nan"),
        (padding, lambda: model(x), "positions marks no token: expected a batch with at least one token"),
        (padding.long(), lambda: model(x), r"positions must be \(2, 5\) of torch.bool, not \(2, 5\) of torch.int64"),
        (padding[:1], lambda: model(x), r"positions must be \(2, 5\) of torch.bool, not \(1, 5\) of torch.bool"),
    ):
        with pytest.raises(ValueError, match=message), admin_profiling(model, positions):
            passes()
        assert weights_of(model) == [1, 1, 1, 1]


def test_training_without_the_pass_is_no_pass_and_loaded_weights_are(x):
    model, loaded = Blocks("admin").double(), Blocks("admin").double()
    model(x).square().sum().backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.1 * parameter.grad
    assert not torch.all(model.connections[3].skip_weight == 1) and not is_profiled(model)
    with admin_profiling(model):
        model(x)
    loaded.load_state_dict(model.state_dict())
    assert is_profiled(model) and is_profiled(loaded)
    for connection in loaded.connections:
        connection.reset_parameters()
    assert not is_profiled(loaded)
