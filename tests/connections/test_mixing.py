"""A connection's description as a weighted sum equals what its blocks compute."""

from __future__ import annotations

import pytest
import torch

from rskip.connections import Mixing, list_connections, mixing_of, parse_connection
from tests.connections.every_connection import specs_on_text
from tests.connections.stack import FEATURES, Stack

SPECS = [spec for family in list_connections() for spec in specs_on_text(family.name)]
# other families may be, these must be
DESCRIBED = {"attnres", "denseformer", "hyper", "mhc", "mudd", "mhc_lite", "prenorm", "x0", "xskip"}


def described(spec: str, stack: str) -> int:
    """Checks every block of a stack that has a description, and returns their number."""
    model = Stack(spec, stack).draw()
    state = model.stack.enter(torch.randn(2, 4, FEATURES, dtype=torch.float64))
    count = 0
    for number, connection in enumerate(model.connections):
        mixing = mixing_of(connection)
        given, kept = connection.before(state)
        f = torch.randn_like(given)
        new = connection.after(kept, f)
        if mixing is not None:
            count += 1
            equals(connection, mixing(state, f), state, given, f, new)
        state = new if number % 2 else model.block(state, number)
    return count


def equals(connection, mixing: Mixing, state, given, f, new) -> None:
    reads, carries, adds = (each.double() for each in (mixing.reads, mixing.carries, mixing.adds))
    parts = connection.parts(state).double()
    u = (reads.unsqueeze(-1) * parts).sum(-2)
    norm = getattr(connection, "norm", None)
    torch.testing.assert_close(given, u if norm is None else norm(u), rtol=1e-6, atol=1e-6)
    expected = carries @ parts + adds.unsqueeze(-1) * f.unsqueeze(-2)
    torch.testing.assert_close(connection.parts(new).double(), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
@pytest.mark.parametrize("spec", SPECS)
@torch.no_grad()
def test_the_description_equals_the_step(spec, stack):
    torch.manual_seed(1)
    parsed = parse_connection(spec)
    if not described(spec, stack) and parsed.family in DESCRIBED:
        assert parsed.family == "xskip" and parsed.norm, f"{spec} has no description"


@torch.no_grad()
def test_an_inherited_description_of_another_formula_is_ignored():
    model = Stack("denseformer")
    kind = type(model.connections[0])
    own = type("Own", (kind,), {"after": lambda self, kept, f: kind.after(self, kept, 2 * f)})
    model.connections[0].__class__ = own
    assert mixing_of(model.connections[0]) is None and mixing_of(model.connections[1]) is not None
