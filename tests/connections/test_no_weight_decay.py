"""Parameters that take no weight decay: gains, biases, factors and static mixing weights, but no linear map."""

from __future__ import annotations

import pytest

from rskip.formulas import registry
from tests.connections.every_connection import FAMILIES, built_for, specs_of

LINEAR_MAPS = {
    "down.weight", "up.weight", "mixing", "output_mixing", "step.weight", "target.weight", "inject.weight",
    "reading.down.weight", "reading.up.weight",
} | {
    f"{gate}.{map_}.weight"
    for gate in ("gate", "alpha_gate", "beta_gate", "gamma_gate")
    for map_ in ("hidden", "output")
}


@pytest.mark.parametrize("family", FAMILIES)
def test_linear_maps_and_nothing_else_take_weight_decay(family):
    for spec in dict.fromkeys(specs_of(registry.find_family(family))):
        for build in built_for(spec):
            module = build()
            names = {name for name, _ in module.named_parameters()}
            assert module.no_weight_decay == names - LINEAR_MAPS, spec
