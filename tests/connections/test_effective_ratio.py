"""rSkip's ratio of x to f, Eq. 6 of the paper and its generalisation, against autograd's Jacobian."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn


class FixedStatistics(nn.Module):
    """A layer normalisation whose mean and deviation count as constants; it notes the deviation."""

    def __init__(self, norm: nn.LayerNorm) -> None:
        super().__init__()
        self.norm = norm
        self.deviation: Tensor | None = None

    def forward(self, z: Tensor) -> Tensor:
        self.deviation = torch.sqrt(z.var(-1, unbiased=False, keepdim=True) + self.norm.eps).detach()
        centred = z - z.mean(-1, keepdim=True).detach()
        return centred / self.deviation * self.norm.weight + self.norm.bias


def measured_ratio(connection, x: Tensor, f: Tensor) -> Tensor:
    """dy/dx over dy/df, feature by feature, with the statistics held fixed."""
    of_x, of_f = torch.autograd.functional.jacobian(connection, (x, f))
    features = x.numel()
    of_x, of_f = of_x.reshape(features, features), of_f.reshape(features, features)
    for jacobian in (of_x, of_f):
        assert torch.equal(jacobian, torch.diag(torch.diagonal(jacobian))), (
            "each feature acts on itself alone"
        )
    return (torch.diagonal(of_x) / torch.diagonal(of_f)).reshape(x.shape)


def fix_statistics(connection):
    connection.norms = nn.ModuleList(FixedStatistics(norm) for norm in connection.norms)
    return connection


def test_two_steps_give_equation_6(build, draw):
    connection = build("2rskip+ln", 5)
    x, f = (z.detach() for z in draw(3, 5))
    y = connection(x, f)
    fixed = fix_statistics(connection)
    torch.testing.assert_close(fixed(x, f), y)
    ratio = measured_ratio(fixed, x, f)
    sigma, w = (x + f).std(-1, unbiased=False, keepdim=True), fixed.norms[0].norm.weight
    torch.testing.assert_close(ratio, sigma / w + 1, rtol=1e-4, atol=0)  # the paper's σ₁ leaves eps out
    torch.testing.assert_close(ratio, fixed.norms[0].deviation / w + 1)
    assert ratio[:, 0].std() > 0.1, "differs between positions: rSkip folds into no fixed factor"


@pytest.mark.parametrize("recursion", [1, 2, 3, 4, 6])
def test_the_sum_runs_to_one_less_than_the_recursion(recursion, build, draw):
    connection = fix_statistics(build(f"{recursion}rskip+ln", 5))
    x, f = (z.detach() for z in draw(3, 5))
    ratio = measured_ratio(connection, x, f)
    expected, product = torch.ones(3, 5, dtype=torch.float64), torch.ones(3, 5, dtype=torch.float64)
    for fixed in connection.norms[:-1]:
        product = product * fixed.deviation / fixed.norm.weight
        expected = expected + product
    torch.testing.assert_close(ratio, expected)
    printed = expected + product * connection.norms[-1].deviation / connection.norms[-1].norm.weight
    assert (ratio - printed).abs().min() > 0.1, "the paper's sum, up to λ, is another number"
