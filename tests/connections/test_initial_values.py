"""Initial values: resetting a model restores them, and a connection that needs more from its model warns."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from rskip.connections import (
    Connection,
    Place,
    StackConnection,
    build_connection,
    build_stack_connection,
    register_connection,
)
from rskip.formulas import registry
from rskip.transformer import TransformerConfig
from rskip.transformer.layers import DecoderLayer
from tests.connections.every_connection import FAMILIES, FEATURES, PLACES, built_for, specs_of

NEEDED = {
    "subln": {"inner_norms", "branch_gain"},
    "normformer": {"inner_norms", "scales_heads"},
    "hybridnorm": {"inner_norms"},
    "deepnorm": {"branch_gain"},
    "admin": {"profile"},
    "periln": {"stack"},
}


def start_anew(build: Callable[[], nn.Module], *, parents_first: bool) -> nn.Module:
    """Builds on the meta device and resets, as some trainers do. Values that are not reset stay NaN."""
    with torch.device("meta"):
        module = build()
    module.to_empty(device="cpu")
    for tensor in (*module.parameters(), *module.buffers()):
        tensor.data.fill_(float("nan") if tensor.is_floating_point() else -7)
    for each in list(module.modules()) if parents_first else reversed(list(module.modules())):
        if list(each.parameters(recurse=False)) or list(each.buffers(recurse=False)):
            assert hasattr(each, "reset_parameters"), each
        if hasattr(each, "reset_parameters"):
            each.reset_parameters()
    return module


def assert_starts_as_built(build: Callable[[], nn.Module], spec: str) -> None:
    torch.manual_seed(0)
    first, second = build().state_dict(), build().state_dict()
    for parents_first in (True, False):
        anew = start_anew(build, parents_first=parents_first).state_dict()
        assert list(anew) == list(first)
        for name, value in anew.items():
            if torch.equal(first[name], second[name]):
                assert torch.equal(value, first[name]), (spec, name, parents_first)
            else:  # random values: both come from one distribution around 0
                assert_same_deviation(value, first[name], f"{spec}, {name}")


def assert_same_deviation(value: Tensor, expected: Tensor, name: str) -> None:
    tolerance = 0.03 + 3 / value.numel() ** 0.5
    deviation = expected.square().mean().sqrt()
    torch.testing.assert_close(value.square().mean().sqrt(), deviation, rtol=tolerance, atol=0, msg=name)
    assert value.mean().abs() <= 4 * expected.std() / value.numel() ** 0.5, name


@pytest.mark.parametrize("family", FAMILIES)
def test_a_connection_that_starts_anew_starts_as_it_was_built(family):
    for spec in dict.fromkeys(specs_of(registry.find_family(family))):
        for build in built_for(spec):
            assert_starts_as_built(build, spec)


def initialise(module: nn.Module) -> None:
    """As nanoGPT, timm and transformers do, each type that they know."""
    if isinstance(module, (nn.Linear, nn.Embedding, nn.Conv2d)):
        nn.init.normal_(module.weight, std=0.02)
        if getattr(module, "bias", None) is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, nn.BatchNorm2d)):
        nn.init.ones_(module.weight)
        if getattr(module, "bias", None) is not None:
            nn.init.zeros_(module.bias)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_models_own_initialisation_leaves_a_connection_as_it_was_built(family):
    for spec in dict.fromkeys(specs_of(registry.find_family(family))):
        for build in built_for(spec):
            model = nn.Sequential(nn.Linear(4, 4), build())
            built = {name: value.clone() for name, value in model[1].state_dict().items()}
            model.apply(initialise)
            for name, value in model[1].state_dict().items():
                assert torch.equal(value, built[name]), (spec, name)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_layer_that_starts_anew_starts_as_it_was_built(family):
    """Includes the normalisations inside branches and the gain of the weights."""
    spec = next(specs_of(registry.find_family(family)))
    sizes = {"embed_dim": FEATURES, "ffn_embed_dim": 2 * FEATURES, "attention_heads": 4}
    sides = {f"{side}_{key}": value for side in ("encoder", "decoder") for key, value in sizes.items()}
    connections = {"encoder_connection": spec, "decoder_connection": spec}
    config = TransformerConfig(
        source_vocabulary=8, target_vocabulary=8, value_residual="learned", **sides, **connections
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_starts_as_built(lambda: DecoderLayer(config, 2), spec)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_the_host_must_supply_is_said_where_it_does_not_say_that_it_does(family):
    spec = next(specs_of(registry.find_family(family)))
    needed = set()
    for place in PLACES:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            connection = build_connection(spec, FEATURES, place=place)
        needed |= set(connection.host_needs)
        assert len(warned) == bool(connection.host_needs)
        for warning in warned:
            assert warning.category is UserWarning and warning.filename == __file__
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            build_connection(spec, FEATURES, place=place, host_supplies=connection.host_needs)
    assert needed == NEEDED.get(family, set())
    assert registry.find_family(family).needs_profile == ("profile" in needed)
    assert ("branch" in registry.find_family(family).needs) <= ("inner_norms" in needed)


def test_the_warning_names_what_is_missing_and_how_to_say_that_it_is_there():
    with pytest.warns(UserWarning, match=r"subln needs .*connection.inner_norms.* host_supplies=\['inner_norms'\]"):
        build_connection("subln", 8, place=PLACES[0], host_supplies="branch_gain")
    with pytest.raises(ValueError, match=r"host_supplies is 'inner_norm': .*did you mean 'inner_norms'"):
        build_connection("subln", 8, place=PLACES[0], host_supplies=["inner_norm"])


def test_ones_own_class_that_does_not_set_its_parameters_says_so(monkeypatch):
    monkeypatch.setattr(registry, "_families", dict(registry._families))

    @register_connection("gskip", source="a test")
    class GlobalSkip(Connection):
        def __init__(self, features: int, *, feature_dim: int = -1) -> None:
            super().__init__(features, feature_dim=feature_dim)
            self.gain = nn.Parameter(torch.ones(()))

    class Shifted(StackConnection):
        def __init__(self) -> None:
            super().__init__()
            self.shift = nn.Parameter(torch.zeros(3))

    for module, name in ((build_connection("gskip", 4), "gain"), (Shifted(), "shift")):
        with pytest.warns(UserWarning, match=rf"\.reset_parameters does not reset {name}: make them"):
            module.reset_parameters()


def test_the_permutations_of_mhc_lite_are_known_whoever_allocated_them():
    """transformers allocates what a checkpoint lacks, and leaves it as it is."""
    x = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))
    connection = build_connection("mhc_lite", 8, place=Place("encoder", "ffn", 2, 4, 1, 2))
    stack = build_stack_connection("mhc_lite", 8)

    def output():
        return stack.leave(connection.after(connection.before(stack.enter(x))[1], x))

    expected = output()
    connection._buffers["matrices"] = torch.full_like(connection.matrices, torch.nan)
    assert torch.equal(output(), expected)
