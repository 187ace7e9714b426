"""The eps of the normalisations inside a connection, and its readers: the compiled kernels and the stock form."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from rskip.checkpoint.stock import fold_connections
from rskip.connections import build_connection, build_norm, build_stack_connection
from rskip.formulas import find_family
from rskip.transformer import Transformer, TransformerConfig
from tests.connections.every_connection import FAMILIES, PLACES, built_for, specs_of

NORMALISATIONS = (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, nn.BatchNorm2d)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_normalisation_has_the_eps_that_is_asked_for(family):
    for spec in dict.fromkeys(specs_of(find_family(family))):
        for eps in (None, 1e-6):
            for build in built_for(spec, eps=eps):
                norms = [module for module in build().modules() if isinstance(module, NORMALISATIONS)]
                assert all(norm.eps == (eps or 1e-5) for norm in norms), spec


@pytest.mark.parametrize("spec", ["mhc", "attnres"])
def test_a_mean_square_beside_the_normalisations_has_it_too(spec):
    x = torch.full((1, 2, 8), 1e-3)
    given = []
    for eps in (1e-5, 1e-1):
        torch.manual_seed(0)
        connection = build_connection(spec, 8, place=PLACES[1], eps=eps)
        connection.norm = nn.Identity()
        with torch.no_grad():
            for parameter in connection.parameters():
                parameter.copy_(torch.linspace(1, 2, parameter.numel()).view_as(parameter))
            state = (x, -x, 2 * x, x) if spec == "attnres" else torch.cat([x, -x, 2 * x, x]).movedim(0, -2)[None]
            given.append(connection.before(state)[0])
    assert not torch.allclose(given[0], given[1], rtol=1e-3, atol=0)


@pytest.mark.parametrize("norm", ["ln", "rms"])
def test_build_norm_divides_by_the_root_of_the_variance_and_eps(norm):
    z = torch.tensor([[3.0, -3.0]])
    torch.testing.assert_close(build_norm(norm, 2, eps=0.5)(z), z / 9.5**0.5)


@pytest.mark.parametrize("eps", [-1e-5, float("nan"), float("inf")])
def test_what_is_no_eps_is_refused(eps):
    for build in (
        lambda: build_norm("ln", 4, eps=eps),
        lambda: build_connection("2rskip+ln", 4, eps=eps),
        lambda: build_stack_connection("siamese", 4, eps=eps),
    ):
        with pytest.raises(ValueError, match=r"^eps is .*: expected a number of at least 0, such as 1e-6$"):
            build()


def test_a_model_with_another_eps_has_no_stock_form():
    sizes = {"embed_dim": 8, "ffn_embed_dim": 8, "attention_heads": 1, "layers": 1}
    sides = {f"{side}_{key}": value for side in ("encoder", "decoder") for key, value in sizes.items()}
    model = Transformer(TransformerConfig(source_vocabulary=8, target_vocabulary=8, **sides))
    fold_connections(model)
    model.decoder.layers[0].ffn_connection.norm.eps = 1e-6
    with pytest.raises(ValueError, match=r"decoder\.layers\.0\.ffn_connection\.norm with eps 1e-06"):
        fold_connections(model)
