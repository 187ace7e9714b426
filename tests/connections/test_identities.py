"""The identities between connections, in float64, for value and gradient."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rskip.connections import build_connection, parse_connection


def test_1rskip_and_1xskip_with_ln_are_layer_norm_of_the_sum(build, draw, assert_same, copy_norm):
    xskip, rskip = build("1xskip+ln", 6), build("1rskip+ln", 6, seed=9)
    stock = nn.LayerNorm(6).double()
    copy_norm(xskip.norm, stock)
    copy_norm(xskip.norm, rskip.norms[0])
    x, f = draw(3, 4, 6)
    stock_y = stock(x + f)
    assert torch.equal(xskip(x, f), stock_y) and torch.equal(rskip(x, f), stock_y)
    for connection in (xskip, rskip):
        assert_same(connection(x, f), stock_y, [x, f, *connection.parameters()], [x, f, *stock.parameters()])


class PostNormLayer(nn.Module):
    """The articles' post-norm layer: a norm after each sum."""

    def __init__(self, dim: int, inner: int, heads: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(dim, heads)
        self.linear1, self.linear2 = nn.Linear(dim, inner), nn.Linear(inner, dim)
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)

    def attend(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x)[0]

    def feed(self, x: Tensor) -> Tensor:
        return self.linear2(F.gelu(self.linear1(x)))

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm1(x + self.attend(x))
        return self.norm2(x + self.feed(x))


class PreNormLayer(PostNormLayer):
    """The article's pre-norm layer: a norm before each branch."""

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attend(self.norm1(x))
        return x + self.feed(self.norm2(x))


@pytest.mark.parametrize(("spec", "article"), [("1xskip+ln", PostNormLayer), ("prenorm+ln", PreNormLayer)])
def test_blocks_equal_the_articles_layers(spec, article, build, draw, assert_same, copy_norm):
    torch.manual_seed(0)
    layer = article(8, 16, 2).double()
    first, second = build(spec, 8, seed=1), build(spec, 8, seed=2)
    copy_norm(first.norm, layer.norm1)
    copy_norm(second.norm, layer.norm2)
    x, _ = draw(5, 2, 8)
    y = first(x, layer.attend(first.branch_input(x)))
    y = second(y, layer.feed(second.branch_input(y)))
    ours = [
        x,
        *first.parameters(),
        *second.parameters(),
        layer.linear1.weight,
        layer.attention.in_proj_weight,
    ]
    theirs = [x, *layer.norm1.parameters(), *layer.norm2.parameters(), *ours[-2:]]
    assert_same(y, layer(x), ours, theirs)


def test_1xskip_with_ln_is_the_stock_encoder_layer(draw, assert_same):
    torch.manual_seed(0)
    stock = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True).double()
    first, second = (build_connection("1xskip+ln", 8).double() for _ in range(2))
    first.norm.load_state_dict(stock.norm1.state_dict())
    second.norm.load_state_dict(stock.norm2.state_dict())
    x, _ = draw(2, 5, 8)
    y = first(x, stock.self_attn(x, x, x)[0])
    y = second(y, stock.linear2(torch.relu(stock.linear1(y))))
    shared = [stock.linear1.weight, stock.linear2.bias, stock.self_attn.in_proj_weight]
    assert_same(y, stock(x), [x, *second.parameters(), *shared], [x, *stock.norm2.parameters(), *shared])


def test_branch_scale_1_is_the_default(build, draw, assert_same):
    assert parse_connection("1xskip+ln:branch_scale=1") == parse_connection("1xskip+ln")
    explicit, plain = build("1xskip+ln:branch_scale=1", 5), build("1xskip+ln", 5)
    x, f = draw(4, 5)
    assert_same(explicit(x, f), plain(x, f), [x, f, *explicit.parameters()], [x, f, *plain.parameters()])


def test_half_xskip_is_half_the_input_and_the_branch(build, draw, assert_same):
    x, f = draw(4, 5)
    assert_same(build("0.5xskip", 5)(x, f), x / 2 + f, [x, f], [x, f])


@pytest.mark.parametrize("beta", [0.5, 2.0, 3.0, 8.0])
def test_scaling_the_branch_is_contracting_the_skip(beta, build, draw, assert_same):
    expanded, contracted = build(f"1xskip+ln:branch_scale={beta}", 6), build(f"{1 / beta!r}xskip+ln", 6)
    x, f = draw(3, 4, 6)
    variables = [x, f, *expanded.parameters()], [x, f, *contracted.parameters()]
    # Exact once eps is divided like the variance; with one eps, as close as eps is small beside the variance.
    assert_same(expanded(1e4 * x, 1e4 * f), contracted(1e4 * x, 1e4 * f), *variables, tolerance=1e-9)
    contracted.norm.eps = expanded.norm.eps / beta**2
    assert_same(expanded(x, f), contracted(x, f), *variables)


@pytest.mark.parametrize("spec", ["1xskip", "2rskip", "wskip", "sas"])
def test_rms_is_ln_where_the_mean_is_0(spec, draw, assert_same):
    ln, rms = (build_connection(f"{spec}+{norm}", 6).double() for norm in ("ln", "rms"))
    ln.load_state_dict(rms.state_dict(), strict=False)  # gains 1, biases 0, the same gates
    x, f = draw(3, 4, 6)
    centred = [z - z.mean(-1, keepdim=True) for z in (x, f)]
    assert_same(ln(*centred), rms(*centred), [x, f], [x, f])


FOLDS = {
    "0.5xskip+ln": ("1xskip+ln", 2.0),
    "3xskip+ln": ("1xskip+ln", 1 / 3),
    "1xskip+rms:branch_scale=3": ("1xskip+rms", 3.0),
    "4xskip+ln:branch_scale=2": ("1xskip+ln", 0.5),
    "1rskip+rms": ("1xskip+rms", 1.0),
    "1rskip+bn": ("1xskip+bn", 1.0),
}


@pytest.mark.parametrize(("spec", "simpler", "factor"), [(spec, *fold) for spec, fold in FOLDS.items()])
def test_a_connection_folds_into_a_simpler_one(spec, simpler, factor, build, draw, assert_same):
    fold = parse_connection(spec).fold
    assert (fold.connection, fold.factor) == (simpler, factor)
    ours, theirs = (build(each, 6, feature_dim=1).eval() for each in (spec, simpler))
    state = {name.rpartition("."): tensor for name, tensor in ours.state_dict().items()}
    theirs.load_state_dict({f"{fold.renamed.get(of, of)}.{name}": value for (of, _, name), value in state.items()})
    x, f = draw(3, 6, 2, 2)
    for module in [*ours.modules(), *theirs.modules()]:
        module.eps = 0.0  # exact up to eps
    assert_same(ours(x, f), theirs(x, factor * f), [x, f, *ours.parameters()], [x, f, *theirs.parameters()])


@pytest.mark.parametrize("spec", ["2xskip", "2xskip+bn", "2rskip+ln", "wskip+ln", "sas", "highway", "prenorm+ln"])
def test_others_fold_into_nothing(spec):
    assert parse_connection(spec).fold is None


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


@pytest.mark.parametrize("spec", ["2xskip+ln", "2rskip+ln", "wskip+ln"])
def test_ln_gives_every_position_mean_0_and_deviation_1(spec, draw):
    x, f = draw(3, 5, 16)
    y = build_connection(spec, 16).double()(100 * x + 7, f)
    torch.testing.assert_close(y.mean(-1), torch.zeros(3, 5, dtype=torch.float64))
    torch.testing.assert_close(
        y.std(-1, unbiased=False), torch.ones(3, 5, dtype=torch.float64), rtol=1e-4, atol=0
    )


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
