"""Every row of the table of connections against its formula, written out here from its definition; rSkip's ratio of x
to f, Eq. 6 of the paper and its generalisation, against autograd's Jacobian."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from rskip.connections import PreNorm, build_connection, works_on

Parameters = dict[str, Tensor]
Norm = Callable[[str, Tensor], Tensor]


def norm_of(kind: str, p: Parameters) -> Norm:
    """The normalisation over the last dimension (bn: over all others; gn1: over all but the first), by definition."""

    def normalise(name: str, z: Tensor) -> Tensor:
        if kind == "rms":
            return z / torch.sqrt((z * z).mean(-1, keepdim=True) + 1e-5) * p[f"{name}.weight"]
        over = {"bn": tuple(range(z.dim() - 1)), "gn1": tuple(range(1, z.dim()))}.get(kind, (-1,))
        centred = z - z.mean(over, keepdim=True)
        variance = (centred * centred).mean(over, keepdim=True)
        return centred / torch.sqrt(variance + 1e-5) * p[f"{name}.weight"] + p[f"{name}.bias"]

    return normalise


def sigmoid(z: Tensor) -> Tensor:
    return 1 / (1 + torch.exp(-z))


def single_gate(p: Parameters, name: str, z: Tensor) -> Tensor:
    return sigmoid(z @ p[f"{name}.output.weight"].T + p[f"{name}.output.bias"])


def full_gate(p: Parameters, name: str, z: Tensor) -> Tensor:
    return single_gate(p, name, torch.tanh(z @ p[f"{name}.hidden.weight"].T + p[f"{name}.hidden.bias"]))


def rskip(p: Parameters, x: Tensor, f: Tensor, norm: Norm, recursion: int) -> Tensor:
    for k in range(recursion):
        f = norm(f"norms.{k}", x + f)
    return f


def sas(
    p: Parameters, x: Tensor, f: Tensor, norm: Norm, gate=full_gate, free: bool = False, term: bool = True
) -> Tensor:
    both = torch.cat([x, f], -1)
    a, b = gate(p, "alpha_gate", both), gate(p, "beta_gate", both)
    y = a * x + b * f
    if not term:
        return y
    return y + (gate(p, "gamma_gate", both) if free else (1 - a) * (1 - b)) * norm("norm", x + f)


def highway(p: Parameters, x: Tensor, f: Tensor, gate, over_both: bool) -> Tensor:
    t = gate(p, "gate", torch.cat([x, f], -1) if over_both else x)
    return t * f + (1 - t) * x


BLOCK_FORMULAS: dict[str, Callable[[Parameters, Tensor, Tensor, Norm], Tensor]] = {
    "1xskip": lambda p, x, f, norm: x + f,
    "2xskip": lambda p, x, f, norm: 2 * x + f,
    "0.5xskip": lambda p, x, f, norm: 0.5 * x + f,
    "1xskip:branch_scale=3": lambda p, x, f, norm: x + 3 * f,
    "2xskip:branch_scale=3": lambda p, x, f, norm: 2 * x + 3 * f,
    "1xskip+ln": lambda p, x, f, norm: norm("norm", x + f),
    "2xskip+ln": lambda p, x, f, norm: norm("norm", 2 * x + f),
    "3xskip+ln": lambda p, x, f, norm: norm("norm", 3 * x + f),
    "0.5xskip+ln": lambda p, x, f, norm: norm("norm", 0.5 * x + f),
    "1xskip+ln:branch_scale=2": lambda p, x, f, norm: norm("norm", x + 2 * f),
    "1xskip+ln:branch_scale=3": lambda p, x, f, norm: norm("norm", x + 3 * f),
    "2xskip+rms": lambda p, x, f, norm: norm("norm", 2 * x + f),
    "2xskip+gn1": lambda p, x, f, norm: norm("norm", 2 * x + f),
    "2xskip+bn": lambda p, x, f, norm: norm("norm", 2 * x + f),
    "1rskip+ln": lambda p, x, f, norm: rskip(p, x, f, norm, 1),
    "2rskip+ln": lambda p, x, f, norm: rskip(p, x, f, norm, 2),
    "3rskip+ln": lambda p, x, f, norm: rskip(p, x, f, norm, 3),
    "2rskip+rms": lambda p, x, f, norm: rskip(p, x, f, norm, 2),
    "2rskip+gn1": lambda p, x, f, norm: rskip(p, x, f, norm, 2),
    "3rskip+bn": lambda p, x, f, norm: rskip(p, x, f, norm, 3),
    "wskip+ln": lambda p, x, f, norm: norm("norm", p["skip_weight"] * x + f),
    "wskip+ln:rate=0.01": lambda p, x, f, norm: norm("norm", (0.99 + 0.01 * p["skip_weight"]) * x + f),
    "wskip+ln:floor=1,init=2": lambda p, x, f, norm: norm(
        "norm", (1 + torch.log1p(torch.exp(p["skip_weight"]))) * x + f
    ),
    "wskip+rms": lambda p, x, f, norm: norm("norm", p["skip_weight"] * x + f),
    "wskip+gn1": lambda p, x, f, norm: norm("norm", p["skip_weight"] * x + f),
    "wskip+bn": lambda p, x, f, norm: norm("norm", p["skip_weight"] * x + f),
    "sas": lambda p, x, f, norm: sas(p, x, f, norm),
    "sas+gn1": lambda p, x, f, norm: sas(p, x, f, norm),
    "sas+bn": lambda p, x, f, norm: sas(p, x, f, norm),
    "sas+rms": lambda p, x, f, norm: sas(p, x, f, norm),
    "sas:gamma=free": lambda p, x, f, norm: sas(p, x, f, norm, free=True),
    "sas:norm_term=false": lambda p, x, f, norm: sas(p, x, f, norm, term=False),
    "sas:gate=single": lambda p, x, f, norm: sas(p, x, f, norm, gate=single_gate),
    "sas:gamma=free,gate=single": lambda p, x, f, norm: sas(p, x, f, norm, gate=single_gate, free=True),
    "sas:host=prenorm": lambda p, x, f, norm: sas(p, x, f, norm),
    "highway": lambda p, x, f, norm: highway(p, x, f, single_gate, over_both=False),
    "highway:bias=-6": lambda p, x, f, norm: highway(p, x, f, single_gate, over_both=False),
    "highway:gate=single": lambda p, x, f, norm: highway(p, x, f, single_gate, over_both=True),
    "highway:gate=full": lambda p, x, f, norm: highway(p, x, f, full_gate, over_both=True),
    "highway:gate=shortcut": lambda p, x, f, norm: f + (1 - single_gate(p, "gate", x)) * x,
    "prenorm+ln": lambda p, x, f, norm: x + f,
    "prenorm+rms": lambda p, x, f, norm: x + f,
}


def kind_of(spec: str) -> str:
    return next((kind for kind in ("bn", "gn1", "rms") if f"+{kind}" in spec), "ln")


TEXT = [spec for spec in BLOCK_FORMULAS if kind_of(spec) not in ("bn", "gn1")]
IMAGES = [spec for spec in BLOCK_FORMULAS if works_on(spec, 1)]


def used(connection) -> list[Tensor]:
    """The parameters that y depends on: all but those of the branch's input."""
    if isinstance(connection.formula, PreNorm):
        return []
    return [p for name, p in connection.named_parameters() if not name.startswith("branch_norm")]


@pytest.mark.parametrize("spec", TEXT)
def test_text_follows_the_formula(spec, build, draw, assert_same):
    connection = build(spec, 5)
    p = dict(connection.named_parameters())
    x, f = draw(3, 4, 5)
    expected = BLOCK_FORMULAS[spec](p, x, f, norm_of(kind_of(spec), p))
    variables = [x, f, *used(connection)]
    assert_same(connection(x, f), expected, variables, variables)


@pytest.mark.parametrize("spec", IMAGES)
def test_images_follow_the_formula_pixel_by_pixel(spec, build, draw, assert_same):
    connection = build(spec, 5, feature_dim=1)
    p = dict(connection.named_parameters())
    x, f = draw(2, 5, 3, 4)
    last = [z.permute(0, 2, 3, 1) for z in (x, f)]
    expected = BLOCK_FORMULAS[spec](p, *last, norm_of(kind_of(spec), p)).permute(0, 3, 1, 2)
    variables = [x, f, *used(connection)]
    for form in (torch.contiguous_format, torch.channels_last):
        y = connection(x.to(memory_format=form), f.to(memory_format=form))
        assert_same(y, expected, variables, variables)


@pytest.mark.parametrize(
    ("spec", "member"), [("prenorm+ln", "norm"), ("prenorm+rms", "norm"), ("sas:host=prenorm", "branch_norm")]
)
def test_prenorm_feeds_the_branch_the_normalised_input(spec, member, build, draw, assert_same):
    connection = build(spec, 5)
    p = dict(connection.named_parameters())
    x, matrix = draw(5, 5)
    norm = norm_of(kind_of(spec), p)
    y = connection(x, torch.tanh(connection.branch_input(x) @ matrix))
    expected = BLOCK_FORMULAS[spec](p, x, torch.tanh(norm(member, x) @ matrix), norm)
    variables = [x, matrix, *connection.parameters()]
    assert_same(y, expected, variables, variables)


def test_every_other_connection_feeds_the_branch_its_input(draw):
    x, _ = draw(2, 3, 4, 4)
    for spec in IMAGES:
        assert build_connection(spec, 3, feature_dim=1).branch_input(x) is x, spec


def test_gn1_is_pytorchs_group_norm_and_layer_norm_over_channels_and_pixels(build, draw, assert_same):
    connection = build("1xskip+gn1", 5, feature_dim=1)
    norm = connection.norm
    x, f = draw(2, 5, 3, 4)
    layer_norm = torch.nn.functional.layer_norm(x + f, (5, 3, 4), eps=1e-5)
    by_channel = layer_norm * norm.weight.view(5, 1, 1) + norm.bias.view(5, 1, 1)
    variables = [x, f, norm.weight, norm.bias]
    for expected in (by_channel, torch.nn.functional.group_norm(x + f, 1, norm.weight, norm.bias, 1e-5)):
        assert_same(connection(x, f), expected, variables, variables)


def test_batch_norm_uses_running_statistics_when_evaluated(build, draw):
    connection = build("2xskip+bn", 4, feature_dim=1)
    x, f = draw(8, 4, 3, 3)
    z = (2 * x + f).detach()
    mean, variance = z.mean((0, 2, 3)), z.var((0, 2, 3))  # the running variance is the unbiased one
    connection(x, f)
    norm = connection.norm
    torch.testing.assert_close(norm.running_mean, 0.1 * mean)
    torch.testing.assert_close(norm.running_var, 0.9 + 0.1 * variance)
    assert norm.num_batches_tracked == 1
    connection.eval()
    pixelwise = [v.view(-1, 1, 1) for v in (norm.running_mean, norm.running_var, norm.weight, norm.bias)]
    expected = (z - pixelwise[0]) / torch.sqrt(pixelwise[1] + 1e-5) * pixelwise[2] + pixelwise[3]
    torch.testing.assert_close(connection(x, f), expected)
    assert norm.num_batches_tracked == 1


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
        assert torch.equal(jacobian, torch.diag(torch.diagonal(jacobian))), "each feature acts on itself alone"
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
