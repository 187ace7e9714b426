"""A connection that states its formula as sums and normalisations is computed by the kernels; no other is."""

from __future__ import annotations

import pytest
import torch

from rskip.connections import (
    HOST_NEEDS,
    Connection,
    NormalisedSum,
    Place,
    XSkip,
    build_connection,
    build_norm,
    register_connection,
)
from rskip.connections import registry as families
from rskip.connections.gates import Gate
from rskip.connections.normalised_sum import gated_sum, normalised_sum
from rskip.connections.norms import LayerNorm
from rskip.cpu import find_library, for_inference
from tests.connections.every_connection import OWN_FAMILIES, families_of, specs_of, with_every_family
from tests.cpu.test_decoder import assert_equal_decoding

PLACE = Place("decoder", "encoder_attn", sublayer=2, sublayers=6, layer=1, layers=2, other_layers=2)


def _built(spec):
    return build_connection(spec, 8, place=PLACE, host_supplies=HOST_NEEDS)


def _families_with(stated):
    """The families whose connections state a form of the kernels."""
    return [family for family in OWN_FAMILIES if stated(_built(next(specs_of(family)))) is not None]


STATED = with_every_family([
    "1xskip", "2xskip+rms", "1xskip+ln:branch_scale=2", "3rskip+ln", "prenorm+ln", "deepnorm", "subln", "normformer",
    "hybridnorm", "hybridnorm+rms:first=prenorm", "wskip+ln", "wskip+rms:rate=0.1,floor=0.5", "admin", "askip+ln",
    "askip+rms:form=depth", "askip+ln:form=recursive", "askip+rms:form=mixture", "rezero:init=0.5", "layerscale",
    "layerscale+ln", "lns", "lns+rms", "mixln", "mixln:ratio=0.9", "keel", "sandwich", "periln+rms", "laurel",
    "laurel+ln:form=rw", "laurel+ln:bound=softmax,form=rw", "laurel+rms:rank=2", "normformer:res_scale=true", "gpas",
], _families_with(normalised_sum))  # fmt: skip
GATED = with_every_family([
    "sas", "sas+rms", "sas:gamma=free", "sas:gate=single", "sas:norm_term=false", "sas:host=prenorm", "highway",
    "highway:gate=full", "highway:gate=single", "highway:gate=shortcut", "orthogonal", "orthogonal+rms", "ddl",
    "ddl+rms:init=0.5",
], _families_with(gated_sum))  # fmt: skip
needs_kernels = pytest.mark.skipif(find_library().library is None, reason="the kernels are not compiled here")


class Halved(Connection):
    """norm(x/2 + F(norm(x))): a user's own."""

    def __init__(self, features, *, norm, feature_dim=-1):
        super().__init__(features, feature_dim=feature_dim)
        self.inner, self.outer = (build_norm(norm, features, feature_dim) for _ in range(2))

    def branch_input(self, x):
        return self.inner(x)

    def combine(self, x, f):
        return self.outer(x / 2 + f)

    def as_norms(self):
        return NormalisedSum(norms=[self.outer], scale=0.5, branch_norm=self.inner)


class Twice(Halved):
    """Another formula, which it doesn't state."""

    def combine(self, x, f):
        return super().combine(x, 2 * f)


class Before(Halved):
    def before(self, state):
        return state, state


class Restated(Twice):
    def as_norms(self):
        return NormalisedSum(norms=[self.outer], scale=0.5, branch_scale=2, branch_norm=self.inner)


@pytest.fixture
def own(monkeypatch):
    """The families `halved`, `twice` and `restated`."""
    monkeypatch.setattr(families, "_families", dict(families._families))
    for kind in (Halved, Twice, Restated):
        register_connection(
            kind.__name__.lower(), formula="norm(x/2 + f)", source="this test", norms=("ln", "rms"), text_only=True
        )(kind)


@needs_kernels
@pytest.mark.parametrize("name", ["halved", "twice", "restated"])
@pytest.mark.parametrize("norm", ["ln", "rms"])
def test_a_users_connection_is_decoded_by_the_kernels_as_by_pytorch(name, norm, own, build, source, monkeypatch):
    model = for_inference(build(f"{name}+{norm}"), "float32")
    calls = []
    for kind in (Halved, Twice, Restated):
        monkeypatch.setattr(kind, "combine", _counted(calls, kind.combine))
    with torch.inference_mode():
        memory = model.encode(source)
        model.step(torch.full((3, 1), 2), model.start(memory))
    assert bool(calls) == (name == "twice")
    monkeypatch.undo()
    assert_equal_decoding(model, source, beams=3, steps=4)


def _counted(calls, function):
    def combine(self, x, f):
        calls.append(self)
        return function(self, x, f)

    return combine


@pytest.mark.parametrize("spec", STATED)
def test_what_a_family_states_is_its_formula(spec):
    connection = _built(spec)
    stated = normalised_sum(connection)
    for parameter in connection.parameters():
        torch.nn.init.uniform_(parameter, 0.5, 1.5)
    stated = normalised_sum(connection)  # with these parameters
    x, f = torch.randn(2, 5, 8)
    given = x if stated.branch_norm is None else stated.input_scale * stated.branch_norm(x)
    torch.testing.assert_close(given, connection.branch_input(x))
    expected = connection(x, f)
    x = x if stated.added is None else x + stated.added[1](stated.added[0](x))
    ys = [stated.branch_scale * (f if stated.output_norm is None else stated.output_norm(f))]
    for norm in stated.norms:
        ys.append(norm(stated.scale * x + ys[-1]))
    y = ys[-1] if stated.norms else stated.scale * x + ys[-1]
    if stated.shares is not None:
        y = sum(share * y for share, y in zip(stated.shares, ys[1:], strict=True))
    torch.testing.assert_close(y, expected)


@needs_kernels
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("spec", STATED)
def test_stated_sums_are_one_program(spec, precision, build, source, monkeypatch):
    model = for_inference(build(spec), precision)
    assert_equal_decoding(model, source, beams=3, steps=3, tolerance=1e-5 if precision == "float32" else 0.08)
    with torch.inference_mode():
        state = model.start(model.encode(source))
        assert model.decoding(state, 3) is not None  # no module computes a part of a step


def test_the_docs_examples_of_other_formulas_have_no_kernel_form():
    assert not {"frac", "ngpt"} & families_of([*STATED, *GATED]), "docs/speed_reference.md and docs/translation.md"


@pytest.mark.parametrize("spec", GATED)
def test_what_a_family_states_of_its_gates_is_its_formula(spec):
    connection = _built(spec)
    stated = gated_sum(connection)
    for parameter in connection.parameters():
        torch.nn.init.uniform_(parameter, -1, 1.5)
    x, f = torch.randn(2, 5, 8)
    torch.testing.assert_close(x if stated.branch_norm is None else stated.branch_norm(x), connection.branch_input(x))
    over = x if stated.over == "x" else torch.cat([x, f], 1)
    along = (x * f).sum(1, keepdim=True)
    alpha = stated.alpha(over) if stated.form not in ("orthogonal", "delta") else None
    if stated.form == "orthogonal":
        y = x + f - along / (x.square().sum(1, keepdim=True) + 1e-6) * x
    elif stated.form == "delta":
        length = (f.square().sum(1, keepdim=True) + 1e-10).sqrt()
        step, target = stated.alpha(stated.branch_norm(x)).sigmoid(), stated.beta(x).sigmoid()
        y = x + 2 * step * (4 * target - along / length) * f / length
    elif stated.form != "scaling":
        y = (f if stated.form == "shortcut" else alpha * f) + (1 - alpha) * x
    else:
        beta = stated.beta(over)
        gamma = (1 - alpha) * (1 - beta) if stated.gamma is None else stated.gamma(over)
        y = alpha * x + beta * f + (0 if stated.norm is None else gamma * stated.norm(x + f))
    torch.testing.assert_close(y, connection(x, f))


@needs_kernels
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("spec", GATED)
def test_gates_are_computed_by_the_kernels(spec, precision, build, source, monkeypatch):
    try:
        model = for_inference(build(spec), precision)
    except ValueError:
        pytest.skip("this processor has no exact 8-bit products")
    assert_equal_decoding(model, source, beams=3, steps=3, tolerance=1e-5 if precision == "float32" else 0.05)
    monkeypatch.setattr(Gate, "forward", lambda *_: pytest.fail("a module computed a gate"))
    with torch.inference_mode():
        assert model.decoding(model.start(model.encode(source)), 3) is not None


def test_a_formula_is_not_inherited_by_a_class_that_changes_it():
    assert normalised_sum(Halved(4, norm="ln")) is not None
    assert normalised_sum(Twice(4, norm="ln")) is None
    assert normalised_sum(Before(4, norm="ln")) is None
    assert normalised_sum(Restated(4, norm="ln")).branch_scale == 2
    plain = type("Plain", (Halved,), {})(4, norm="ln")
    assert normalised_sum(plain) is not None
    plain.combine = lambda x, f: x
    assert normalised_sum(plain) is None
    for spec in ("sas", "highway"):
        assert normalised_sum(build_connection(spec, 4, host_supplies=HOST_NEEDS)) is None


class OtherNorm(LayerNorm):
    def forward(self, z):
        return z


@pytest.mark.parametrize(
    "changes",
    [
        {"norm": OtherNorm(4)},
        {"norm": torch.nn.LayerNorm(4)},
        {"norm": build_norm("gn1", 4, 1)},
        {"norm": build_norm("ln", 4, 1)},
    ],
    ids=str,
)
def test_what_no_kernel_computes_is_none(changes):
    connection = XSkip(4, scale=2.0, norm="ln", branch_scale=1.0)
    assert normalised_sum(connection) is not None
    for name, value in changes.items():
        connection.__dict__.pop(name, None)
        setattr(connection, name, value)
    assert normalised_sum(connection) is None


def test_norms_of_two_kinds_or_of_two_eps_are_none():
    for other in (build_norm("rms", 4), build_norm("ln", 4, eps=1e-6)):

        class Mixed(Halved):
            def as_norms(self, other=other):
                return NormalisedSum(norms=[build_norm("ln", 4), other])

        assert normalised_sum(Mixed(4, norm="ln")) is None
