"""The identities between connections, in float64, for value and gradient."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from rskip.connections import build_connection, parse_connection


def test_1rskip_and_1xskip_with_ln_are_layer_norm_of_the_sum(build, draw, assert_same):
    xskip, rskip = build("1xskip+ln", 6), build("1rskip+ln", 6, seed=9)
    stock = nn.LayerNorm(6).double()
    for norm in (stock, rskip.norms[0]):
        norm.load_state_dict(xskip.norm.state_dict())
    x, f = draw(3, 4, 6)
    stock_y = stock(x + f)
    assert torch.equal(xskip(x, f), stock_y) and torch.equal(rskip(x, f), stock_y)
    for connection in (xskip, rskip):
        assert_same(connection(x, f), stock_y, [x, f, *connection.parameters()], [x, f, *stock.parameters()])


@pytest.mark.parametrize(("spec", "norm_first"), [("1xskip+ln", False), ("prenorm+ln", True)])
def test_blocks_equal_torchs_encoder_layer(spec, norm_first, build, draw, assert_same):
    torch.manual_seed(0)
    stock = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, norm_first=norm_first).double()
    first, second = build(spec, 8, seed=1), build(spec, 8, seed=2)
    stock.norm1.load_state_dict(first.norm.state_dict())
    stock.norm2.load_state_dict(second.norm.state_dict())
    x, _ = draw(2, 5, 8)
    attended = first.branch_input(x)
    y = first(x, stock.self_attn(attended, attended, attended)[0])
    y = second(y, stock.linear2(torch.relu(stock.linear1(second.branch_input(y)))))
    shared = [x, stock.linear1.weight, stock.linear2.bias, stock.self_attn.in_proj_weight]
    ours = [*shared, *first.parameters(), *second.parameters()]
    assert_same(y, stock(x), ours, [*shared, *stock.norm1.parameters(), *stock.norm2.parameters()])


@pytest.mark.parametrize("spec", ["1xskip", "2rskip", "wskip", "sas"])
def test_rms_is_ln_where_the_mean_is_0(spec, draw, assert_same):
    ln, rms = (build_connection(f"{spec}+{norm}", 6).double() for norm in ("ln", "rms"))
    ln.load_state_dict(rms.state_dict(), strict=False)  # gains 1, biases 0, the same gates
    x, f = draw(3, 4, 6)
    centred = [z - z.mean(-1, keepdim=True) for z in (x, f)]
    assert_same(ln(*centred), rms(*centred), [x, f], [x, f])


def test_a_factor_of_x_in_2rskip_is_the_first_norms_gain_and_bias(build, draw, assert_same):
    """LN₂(κx + w₁ ⊙ n + b₁) = LN₂(x + (w₁/κ) ⊙ n + b₁/κ): learning κ as well would be nothing new."""
    rskip = build("2rskip+ln", 6)
    with torch.no_grad():
        for parameter in rskip.parameters():
            parameter.uniform_(0.5, 1.5)
    first, second = rskip.norms
    scaled = copy.deepcopy(rskip)
    with torch.no_grad():
        for parameter in scaled.norms[0].parameters():
            parameter /= 3
    x, f = draw(3, 4, 6)
    second.eps = scaled.norms[1].eps = 0
    assert_same(second(3 * x + first(x + f)), scaled(x, f), [x, f], [x, f])


FOLDS = {
    "0.5xskip+ln": ("1xskip+ln", 2.0),
    "1xskip+ln:branch_scale=2": ("1xskip+ln", 2.0),
    "3xskip+ln": ("1xskip+ln", 1 / 3),
    "1xskip+rms:branch_scale=3": ("1xskip+rms", 3.0),
    "4xskip+ln:branch_scale=2": ("1xskip+ln", 0.5),
    "1rskip+rms": ("1xskip+rms", 1.0),
    "1rskip+bn": ("1xskip+bn", 1.0),
    "2xskip+gn1": ("1xskip+gn1", 0.5),
}


@pytest.mark.parametrize(("spec", "simpler", "factor"), [(spec, *fold) for spec, fold in FOLDS.items()])
def test_a_connection_folds_into_a_simpler_one(spec, simpler, factor, build, draw, assert_same):
    fold = parse_connection(spec).fold
    ours, theirs = (build(each, 6, feature_dim=1).eval() for each in (spec, simpler))
    assert (fold.connection, fold.factor_of(ours)) == (simpler, factor)
    state = {name.rpartition("."): tensor for name, tensor in ours.state_dict().items()}
    theirs.load_state_dict({f"{fold.renamed.get(of, of)}.{name}": value for (of, _, name), value in state.items()})
    x, f = draw(3, 6, 2, 2)
    for module in [*ours.modules(), *theirs.modules()]:
        module.eps = 0.0  # exact up to eps
    assert_same(ours(x, f), theirs(x, factor * f), [x, f, *ours.parameters()], [x, f, *theirs.parameters()])


CASES = {
    "neither: LN(x + f)": (-40, -40, lambda x, f, ln: ln(x + f)),
    "both: x + f": (40, 40, lambda x, f, ln: x + f),
    "the branch": (-40, 40, lambda x, f, ln: f),
    "the input": (40, -40, lambda x, f, ln: x),
}


@pytest.mark.parametrize("gate", ["full", "single"])
@pytest.mark.parametrize("case", CASES)
def test_sas_with_constant_gates(case, gate, draw, assert_same):
    alpha_bias, beta_bias, expected = CASES[case]
    spec = f"sas:gate={gate},alpha_bias={alpha_bias},beta_bias={beta_bias}"
    connection = build_connection(spec, 6).double()
    connection.reset_parameters(nn.init.zeros_)
    ln = nn.LayerNorm(6).double()
    with torch.no_grad():
        for module in (connection.norm, ln):
            module.weight.copy_(torch.linspace(0.5, 2, 6))
            module.bias.copy_(torch.linspace(-1, 1, 6))
    x, f = draw(3, 4, 6)
    zero = 0 * (x + f + ln(x + f)).sum()  # so that the expected y has a gradient in x and f, be it 0
    assert_same(connection(x, f), expected(x, f, ln) + zero, [x, f], [x, f])


@pytest.mark.parametrize("gate", ["full", "single"])
def test_sas_with_complementary_gates_is_highway_and_post_norm(gate, build, draw, assert_same):
    connection = build(f"sas:gate={gate}", 4)
    connection.alpha_gate.load_state_dict(connection.beta_gate.state_dict())
    with torch.no_grad():  # σ(-z) = 1 - σ(z)
        connection.alpha_gate.output.weight.neg_()
        connection.alpha_gate.output.bias.neg_()
    x, f = draw(3, 4)
    beta = connection.beta_gate(torch.cat([x, f], -1))
    assert beta.detach().std() > 0.05, "gates that differ between positions"
    expected = (1 - beta) * x + beta * f + beta * (1 - beta) * connection.norm(x + f)
    variables = [x, f, *connection.norm.parameters()]
    assert_same(connection(x, f), expected, variables, variables)


def test_highway_is_sas_without_norm_term_and_complementary_gates(build, draw, assert_same):
    sas, highway = build("sas:norm_term=false,gate=single", 4), build("highway:gate=single", 4)
    sas.beta_gate.load_state_dict(highway.gate.state_dict())
    with torch.no_grad():
        sas.alpha_gate.output.weight.copy_(-highway.gate.output.weight)
        sas.alpha_gate.output.bias.copy_(-highway.gate.output.bias)
    x, f = draw(3, 4)
    assert_same(sas(x, f), highway(x, f), [x, f], [x, f])


@pytest.mark.parametrize(("norm", "ignores"), [("bn", True), ("ln", False)])
def test_bn_ignores_a_feature_that_is_constant_over_the_batch_and_ln_does_not(norm, ignores, build, draw):
    connection = build(f"2xskip+{norm}", 4, feature_dim=1)
    x, f = (z.detach().clone() for z in draw(6, 4, 2, 2))
    f[:, 2] = 0

    def output(value: Tensor) -> Tensor:
        constant = x.clone()
        constant[:, 2] = value
        return connection(constant, f)

    value = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    y = output(value)
    gradient = torch.autograd.grad(y.square().sum(), value)[0]
    difference = (output(torch.tensor(3.0)) - y).abs().max()
    if ignores:
        torch.testing.assert_close(y[:, 2], connection.norm.bias[2].expand(6, 2, 2))
        assert difference < 1e-12 and gradient.abs() < 1e-12
    else:
        assert difference > 0.1 and gradient.abs() > 0.1
