"""Connections as modules: names and numbers of parameters, initial values, state, repr, and inputs that do not fit."""

from __future__ import annotations

import math

import pytest
import torch

from rskip.connections import build_connection
from rskip.connections.formula import FormulaStack
from rskip.formulas import StackFormula, X
from rskip.formulas.terms import Number

GATE_FULL = ["hidden.weight", "hidden.bias", "output.weight", "output.bias"]
NORM = ["norm.weight", "norm.bias"]
MEMBERS = {
    "2xskip": [],
    "1xskip+ln": NORM,
    "1xskip+rms": ["norm.weight"],
    "1xskip+bn": [*NORM, "norm.running_mean", "norm.running_var", "norm.num_batches_tracked"],
    "1xskip+gn1": NORM,
    "2rskip+ln": ["norms.0.weight", "norms.0.bias", "norms.1.weight", "norms.1.bias"],
    "3rskip+rms": ["norms.0.weight", "norms.1.weight", "norms.2.weight"],
    "wskip+ln:init=2": ["skip_weight", *NORM],
    "sas": [f"{gate}_gate.{name}" for gate in ("alpha", "beta") for name in GATE_FULL] + NORM,
    "sas:gamma=free": [f"{gate}_gate.{name}" for gate in ("alpha", "beta", "gamma") for name in GATE_FULL]
    + NORM,
    "sas:norm_term=false": [f"{gate}_gate.{name}" for gate in ("alpha", "beta") for name in GATE_FULL],
    "sas:gate=single": [f"{g}_gate.{name}" for g in ("alpha", "beta") for name in GATE_FULL[2:]] + NORM,
    "highway": ["gate.output.weight", "gate.output.bias"],
    "highway:gate=full": [f"gate.{name}" for name in GATE_FULL],
    "highway:gate=single": ["gate.output.weight", "gate.output.bias"],
    "highway:gate=shortcut": ["gate.output.weight", "gate.output.bias"],
    "prenorm+ln": NORM,
    "prenorm+rms": ["norm.weight"],
}


@pytest.mark.parametrize("spec", MEMBERS)
def test_state_has_the_agreed_names(spec):
    feature_dim = 1 if "bn" in spec or "gn1" in spec else -1
    assert list(build_connection(spec, 6, feature_dim=feature_dim).state_dict()) == MEMBERS[spec]


def test_repr_shows_the_formulas_settings():
    text = repr(build_connection("sas:norm_term=false,gate=single,alpha_bias=3", 8))
    for part in ("SAS(", "sas:alpha_bias=3,gate=single,norm_term=false, features=8", "initial_bias=3"):
        assert part in text


@pytest.mark.parametrize(
    ("spec", "biases"),
    [
        ("sas:gamma=free,alpha_bias=3,beta_bias=-3", {"alpha_gate": 3, "beta_gate": -3, "gamma_gate": 0}),
        ("highway", {"gate": -3}),
        ("highway:bias=-6", {"gate": -6}),
        ("highway:gate=full", {"gate": -3}),
    ],
)
def test_initial_values_of_gates(spec, biases):
    torch.manual_seed(0)
    connection = build_connection(spec, 64)
    for name, bias in biases.items():
        gate = getattr(connection, name)
        assert torch.all(gate.output.bias == bias)
        assert gate.hidden is None or torch.all(gate.hidden.bias == 0)
        for weight in (gate.output.weight, *([] if gate.hidden is None else [gate.hidden.weight])):
            bound = math.sqrt(6 / sum(weight.shape))  # Xavier's
            assert weight.abs().max() <= bound
            torch.testing.assert_close(weight.std().item(), bound / math.sqrt(3), rtol=0.15, atol=0)


def test_initial_values_of_wskip():
    for spec, value in {
        "wskip+ln": 1, "wskip+ln:init=2": 2, "wskip+ln:init=-0.5": -0.5, "wskip+ln:rate=0.01": 1,
        "wskip+ln:floor=0.5,rate=0.1": 1,
    }.items():  # fmt: skip
        scale = build_connection(spec, 8).kernel_form().scale
        assert scale.tolist() == pytest.approx([value] * 8, rel=1e-6)


def test_a_learned_skip_moves_at_its_rate():
    """With Adam at `rate` times the learning rate, and not below its floor."""
    x, f = torch.randn(2, 3, 5, 8, generator=torch.Generator().manual_seed(0))
    moved = {}
    for spec in ("wskip+ln", "wskip+ln:rate=0.01", "wskip+ln:floor=1,init=2"):
        connection = build_connection(spec, 8)
        start = connection.kernel_form().scale.detach().clone()
        adam = torch.optim.Adam([connection.skip_weight], lr=0.1)
        for _ in range(100):
            adam.zero_grad()
            (connection(x, f) * f).sum().neg().backward()  # more of f, less of x
            adam.step()
            if adam.state[connection.skip_weight]["step"] == 1:
                moved[spec] = (connection.kernel_form().scale - start).detach()
    torch.testing.assert_close(moved["wskip+ln:rate=0.01"], 0.01 * moved["wskip+ln"], rtol=1e-3, atol=0)
    assert connection.kernel_form().scale.min() > 1 > connection.skip_weight.min() + 1


def test_hooks_of_members_run_and_a_replaced_member_computes():
    connection, called = build_connection("2rskip+ln", 4), []
    x, f = torch.randn(2, 3, 4)
    connection.norms[0].register_forward_hook(lambda *_: called.append(0))
    connection(x, f)
    connection.norms[0], connection.norms[1] = torch.nn.Identity(), torch.nn.Identity()
    torch.testing.assert_close(connection(x, f), 2 * x + f)
    assert called == [0]


class Scaled(StackFormula):
    enters, leaves = Number(3, "3") * X, Number(0.5, "0.5") * X


def test_a_stack_of_one_stream_enters_and_leaves_as_its_formula_says():
    stack, x = FormulaStack(4, Scaled()), torch.randn(2, 4)
    torch.testing.assert_close((stack.enter(x), stack.leave(x)), (3 * x, 0.5 * x))
