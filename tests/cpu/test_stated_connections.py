"""A connection that states its formula as sums and normalisations is computed by the kernels; no other is."""

from __future__ import annotations

import pytest
import torch

from rskip.connections import (
    HOST_NEEDS,
    F,
    Formula,
    Norm,
    Orthogonal,
    Place,
    TextNorm,
    X,
    build_connection,
    register_connection,
)
from rskip.connections.linear import Gate
from rskip.cpu import find_library, for_inference
from rskip.formulas import registry as families
from rskip.formulas import terms
from rskip.kernel_forms import GatedSum, NormalisedSum
from tests.connections.every_connection import OWN_FAMILIES, families_of, specs_of, with_every_family
from tests.cpu.test_decoder import assert_equal_decoding

PLACE = Place("decoder", "encoder_attn", sublayer=2, sublayers=6, layer=1, layers=2, other_layers=2)


def _built(spec):
    return build_connection(spec, 8, place=PLACE, host_supplies=HOST_NEEDS)


def _families_with(form):
    """The families whose connections have this form of the kernels."""
    return [family for family in OWN_FAMILIES if isinstance(_built(next(specs_of(family))).kernel_form(), form)]


STATED = with_every_family([
    "1xskip", "2xskip+rms", "1xskip+ln:branch_scale=2", "3rskip+ln", "prenorm+ln", "deepnorm", "subln", "normformer",
    "hybridnorm", "hybridnorm+rms:first=prenorm", "wskip+ln", "wskip+rms:rate=0.1,floor=0.5", "admin", "askip+ln",
    "askip+rms:form=depth", "askip+ln:form=recursive", "askip+rms:form=mixture", "rezero:init=0.5", "layerscale",
    "layerscale+ln", "lns", "lns+rms", "mixln", "mixln:ratio=0.9", "keel", "sandwich", "periln+rms", "laurel",
    "laurel+ln:form=rw", "laurel+ln:bound=softmax,form=rw", "laurel+rms:rank=2", "normformer:res_scale=true", "gpas",
], _families_with(NormalisedSum))  # fmt: skip
GATED = with_every_family([
    "sas", "sas+rms", "sas:gamma=free", "sas:gate=single", "sas:norm_term=false", "sas:host=prenorm", "highway",
    "highway:gate=full", "highway:gate=single", "highway:gate=shortcut", "orthogonal", "orthogonal+rms", "ddl",
    "ddl+rms:init=0.5",
], _families_with(GatedSum))  # fmt: skip
needs_kernels = pytest.mark.skipif(find_library().library is None, reason="the kernels are not compiled here")


class Halved(Formula):
    """norm(x/2 + F(norm(x))): a user's own."""

    text_only = True

    def __init__(self, *, norm: TextNorm) -> None:
        self.reads = Norm("inner", norm, X)
        self.y = Norm("outer", norm, 0.5 * X + F)


class OfTwoKinds(Formula):
    """Norms of two kinds, which no kernel computes at once."""

    def __init__(self, *, norm: TextNorm) -> None:
        self.y = Norm("outer", norm, X + Norm("inner", "ln" if norm == "rms" else "rms", X + F))


class OneGate(Formula):
    """A gate of x without one of f, which no kernel computes."""

    def __init__(self, *, norm: TextNorm) -> None:
        self.y = Norm("outer", norm, terms.Gate("gate", (X,), "g") * X + F)


class Repeated(Formula):
    """A sum with x twice, which no kernel adds."""

    def __init__(self, *, norm: TextNorm) -> None:
        self.y = Norm("outer", norm, X + F + terms.Gate("gate", (X,), "g") * X)


class ScaledInput(Formula):
    """A branch that reads x/2, which kernels compute of norm(x) only."""

    def __init__(self, *, norm: TextNorm) -> None:
        self.reads, self.y = 0.5 * X, Norm("outer", norm, X + F)


class MapsOfF(Formula):
    """A low-rank map of f, which kernels compute of x only."""

    text_only = True

    def __init__(self, *, norm: TextNorm) -> None:
        self.reads, self.y = Norm("inner", norm, X), X + F + terms.Map("up", terms.Map("down", F, 3))


class GatesOfTwoWidths(Formula):
    """One factor for x and one per feature for f, which no kernel computes at once."""

    def __init__(self, *, norm: TextNorm) -> None:
        alpha, beta = terms.Gate("alpha", (X, F), "α"), terms.Gate("beta", (X, F), "β", scalar=False)
        self.y = alpha * X + beta * F + Norm("outer", norm, X + F)


class Twice(Orthogonal):
    """Another formula, which it doesn't state."""

    def combine(self, x, f):
        return super().combine(x, 2 * f)


USERS = (Halved, OfTwoKinds, OneGate, Twice, Repeated, ScaledInput, MapsOfF, GatesOfTwoWidths)


@pytest.fixture
def own(monkeypatch):
    """The families of `USERS`."""
    monkeypatch.setattr(families, "_families", dict(families._families))
    for kind in USERS:
        register_connection(kind.__name__.lower(), source="this test")(kind)


@needs_kernels
@pytest.mark.parametrize("name", [kind.__name__.lower() for kind in USERS])
@pytest.mark.parametrize("norm", ["ln", "rms"])
def test_a_users_connection_is_decoded_by_the_kernels_as_by_pytorch(name, norm, own, build, source):
    model = for_inference(build(f"{name}+{norm}"), "float32")
    with torch.inference_mode():
        whole = model.start(model.encode(source)).decoding(3)
    assert (whole is not None) == (name == "halved")
    assert_equal_decoding(model, source, beams=3, steps=4)


@needs_kernels
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("spec", STATED)
def test_stated_sums_are_one_program(spec, precision, build, source, monkeypatch):
    model = for_inference(build(spec), precision)
    assert_equal_decoding(model, source, beams=3, steps=3, tolerance=1e-5 if precision == "float32" else 0.08)
    with torch.inference_mode():
        assert model.start(model.encode(source)).decoding(3) is not None  # no module computes a part of a step


def test_the_docs_examples_of_other_formulas_have_no_kernel_form():
    assert not {"frac", "ngpt"} & families_of([*STATED, *GATED]), "docs/speed.md"


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
        assert model.start(model.encode(source)).decoding(3) is not None
