"""`Residuals`: the connections of a stack in a user's own model."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rskip.connections import HOST_NEEDS, admin_profiling
from rskip.nn import Residuals, adapt, adaptation, no_weight_decay
from rskip.settings.errors import SettingError
from rskip.transformer import Transformer, TransformerConfig
from tests.connections.every_connection import with_every_family

FEATURES = 16


class Attention(nn.Module):
    """Causal self-attention with one head; with a cache, of one position to all before it."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(FEATURES, 3 * FEATURES), nn.Linear(FEATURES, FEATURES)

    def forward(self, x: Tensor, cache: list[Tensor] | None = None) -> tuple[Tensor, None]:
        q, k, v = self.qkv(x).chunk(3, -1)
        if cache is not None:
            cache.append(torch.cat([k, v], -1))
            k, v = torch.cat(cache, 1).chunk(2, -1)
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=cache is None)
        return self.out(attended), None


class Decoder(nn.Module):
    """A language model as a user writes it: six lines are about connections."""

    def __init__(self, connection: str, layers: int = 3, **settings: Any) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, FEATURES)
        self.attention = nn.ModuleList(Attention() for _ in range(layers))
        self.ffn = nn.ModuleList(
            nn.Sequential(nn.Linear(FEATURES, 32), nn.GELU(), nn.Linear(32, FEATURES)) for _ in range(layers)
        )
        self.residuals = Residuals(connection, FEATURES, layers=layers, stack="decoder", **settings)

    def forward(self, tokens: Tensor, caches: list[list[Tensor]] | None = None) -> Tensor:
        s = self.residuals.enter(self.embed(tokens))
        for i, residual in enumerate(self.residuals):
            s = residual.attention(s, self.attention[i], cache=None if caches is None else caches[i])
            s = residual.ffn(s, self.ffn[i])
        return self.residuals.leave(s) @ self.embed.weight.T


@pytest.fixture(params=with_every_family(["2xskip+ln"]))
def spec(request) -> str:
    return request.param


@pytest.fixture
def decoder(spec) -> Decoder:
    torch.manual_seed(0)
    return Decoder(spec, host_supplies=HOST_NEEDS)


def test_a_stack_computes_what_the_transformer_of_the_same_connection_does(spec):
    """The encoder of rskip.transformer, with its branches called through Residuals that have its connections' state."""
    torch.manual_seed(0)
    sizes = {"encoder_embed_dim": FEATURES, "encoder_ffn_embed_dim": 32, "encoder_attention_heads": 2}
    sizes["encoder_layers"] = 3
    sizes |= {name.replace("encoder", "decoder"): value for name, value in sizes.items()}
    config = TransformerConfig(11, 11, **sizes, encoder_connection=spec, decoder_connection=spec)
    encoder = Transformer(config).eval().encoder
    residuals = Residuals(spec, FEATURES, layers=3, other_layers=3, host_supplies=HOST_NEEDS)
    for mine, layer in zip(residuals, encoder.layers, strict=True):
        mine.attention.connection.load_state_dict(layer.self_attn_connection.state_dict())
        mine.ffn.connection.load_state_dict(layer.ffn_connection.state_dict())
    x = torch.randn(2, 5, FEATURES)
    state = residuals.enter(x)
    expected = residuals.enter(x)
    for mine, layer in zip(residuals, encoder.layers, strict=True):
        def feed_forward(given: Tensor, layer: Any = layer) -> Tensor:
            inner = layer.activation(layer.fc1(given))
            return layer.fc2(inner if layer.hidden_norm is None else layer.hidden_norm(inner))

        expected = layer(expected, None)
        state = mine.attention(state, lambda given, attn=layer.self_attn: attn(given, attn.project(given, None), None))
        state = mine.ffn(state, feed_forward)
    torch.testing.assert_close(residuals.leave(state), residuals.leave(expected), rtol=0, atol=0)


def test_decoding_with_a_cache_equals_full_decoding(decoder):
    tokens = torch.arange(7).expand(2, 7)
    full = decoder.eval()(tokens)
    caches: list[list[Tensor]] = [[] for _ in decoder.residuals]
    steps = [decoder(tokens[:, position : position + 1], caches) for position in range(7)]
    torch.testing.assert_close(torch.cat(steps, 1), full, rtol=1e-4, atol=1e-5)


def test_every_parameter_gets_a_gradient_and_reset_restores_the_initial_values(decoder):
    decoder(torch.arange(7)[None]).square().mean().backward()
    assert [name for name, each in decoder.residuals.named_parameters() if each.grad is None] == []
    first = copy.deepcopy(decoder.residuals.state_dict())
    with torch.no_grad():
        for parameter in decoder.residuals.parameters():
            parameter.fill_(7)
    decoder.residuals.reset_parameters(nn.init.zeros_)
    for name, value in decoder.residuals.state_dict().items():
        maps = ("down.weight", "inject.weight", "mixing", "step.weight", "target.weight", "up.weight")
        drawn = "gate" in name or name.endswith(maps)
        assert drawn or torch.equal(value, first[name]), name
        assert not (value == 7).any() or name.endswith("_extra_state")


def test_a_state_of_another_connection_is_refused():
    with pytest.raises(SettingError, match=r"connection is '2xskip\+ln': expected 1xskip\+ln, as in the state"):
        Residuals("2xskip+ln", 8, layers=1).load_state_dict(Residuals("1xskip+ln", 8, layers=1).state_dict())


def test_means_of_states_and_half_precision_states_are_loaded():
    ours, other = Residuals("2xskip+ln", 8, layers=1), Residuals("2xskip+ln", 8, layers=1)
    nn.init.zeros_(other[0].ffn.connection.norm.weight)
    first, second = ours.state_dict(), other.state_dict()
    ours.load_state_dict({name: (first[name] + second[name]) / 2 for name in first})
    assert torch.equal(ours[0].ffn.connection.norm.weight, torch.full((8,), 0.5))
    for half in (torch.float16, torch.bfloat16):
        ours.load_state_dict({name: value.to(half) for name, value in first.items()})
    with pytest.raises(SettingError, match="as in the state dict"):
        ours.load_state_dict({name: value / 3 for name, value in first.items()})
    ours.load_state_dict({name: sum(value * (1 / 3) for _ in range(3)) for name, value in first.items()})


def test_a_branch_may_return_a_tuple_and_its_other_outputs_are_at_hand():
    residual = Residuals("1xskip", 4, layers=1)[0].attention
    x = torch.ones(2, 4)
    assert torch.equal(residual(x, lambda given: (2 * given, "weights")), 3 * x)
    given, kept = residual.before(x)
    assert torch.equal(residual.after(kept, 2 * given), 3 * x)


def test_branches_may_have_any_names():
    residuals = Residuals("2rskip+ln", 4, layers=1, branches={"convolution": "attention", "mixture": "moe"})
    assert [name for name, _ in residuals[0].named_children()] == ["convolution", "mixture"]
    assert len(list(Residuals("askip+ln", 4, layers=3, branches=("block",)).connections())) == 3
    crossed = Residuals("siamese", 4, layers=2, branches=("attention", "cross_attention", "ffn"), other_layers=2)
    assert len(list(crossed.connections())) == 6


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"connection": "subln", "host_supplies": "branch_gain"},
         r"to normalise inside the branch.* host_supplies=\['inner_norms', 'branch_gain'\]"),
        ({"connection": "deepnorm"}, "able to scale"),
        ({"connection": "admin"}, "a pass over data"),
        ({"connection": "2rskip+bn"}, "ln or rms"),
        ({"connection": "hybridnorm", "branches": ("ffn", "attention"), "host_supplies": "inner_norms"}, "its formula"),
        ({"branches": ("attn", "fnn")}, r"branches is \('attn', 'fnn'\): expected names out of .*did you mean 'ffn'"),
        ({"branches": {"train": "ffn"}}, "a valid attribute name"),
        ({"branches": "ffn"}, "without duplicates"),
        ({"branches": ("block", "ffn")}, "either only blocks, or"),
        ({"stack": "encoder", "branches": ("attn", "cross_attn", "ffn")}, "decoder, since the layers"),
        ({"layers": 0}, "layers is 0"),
        ({"eps": -1}, "eps is -1"),
        ({"host_supplies": ["norms"]}, "host_supplies is 'norms'"),
        ({"branches": {"training": "ffn"}}, "branches is 'training': expected a valid attribute name"),
        ({"layers": 10**9}, "layers is 1000000000"),
    ],
)
def test_what_is_wrong_is_told(settings, told):
    given = {"connection": "2rskip+ln", "layers": 2, **settings}
    with pytest.raises(SettingError, match=told):
        Residuals(given.pop("connection"), 8, **given)


@pytest.mark.parametrize("spec", ["sas:host=prenorm", "hyper", "attnres", "periln", "siamese"])
def test_a_model_names_its_parameters_without_weight_decay(spec):
    model = nn.ModuleDict({"embedding": nn.Embedding(5, 8), "stack": Residuals(spec, 8, layers=2)})
    assert no_weight_decay(model) == {f"stack.{name}" for name in model["stack"].no_weight_decay}
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, norm_first=True), 2, nn.LayerNorm(8), False)
    shapes = {name: parameter.shape for name, parameter in adapt(encoder, spec).named_parameters()}
    found = no_weight_decay(encoder)
    assert found <= shapes.keys() and set(adaptation(encoder).new) - found <= {
        name for name, shape in shapes.items() if len(shape) > 1
    }
    assert not any(name.split(".")[2] in ("self_attn", "linear1", "linear2") for name in found if "layers" in name)


def test_wrong_states_are_told():
    residuals = Residuals("mhc", 4, layers=2)
    for x in (torch.ones(2, 4).long(), torch.ones(2, 4).double()):
        with pytest.raises(TypeError, match="but the connections' parameters are torch.float32"):
            residuals.enter(x)
    with pytest.raises(ValueError, match="features last"):
        residuals.enter(torch.ones(2, 8))


def trained_once(residuals, x):
    s = residuals.enter(x)
    for layer in residuals:
        s = layer.ffn(s, torch.tanh)
    return residuals.leave(s)


def test_admin_without_its_profiling_pass_warns_once_in_training():
    def stack(layers=3):
        return Residuals("admin", FEATURES, layers=layers, branches=("ffn",), host_supplies="profile")

    x, unprofiled, profiled = torch.randn(2, 5, FEATURES), stack(), stack()
    with pytest.warns(UserWarning, match=r"admin is trained without its profiling pass: .*admin_profiling") as told:
        trained_once(unprofiled.eval(), x)
        trained_once(unprofiled.train(), x)
        trained_once(unprofiled, x)
    assert len(told) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with admin_profiling(profiled):
            trained_once(profiled, x)
        trained_once(copy.deepcopy(profiled), x)
        trained_once(stack(layers=1), x)  # the first block starts at 1 in any case
