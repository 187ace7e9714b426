"""The test vectors that rskip ships: our code reproduces them, and the script writes them."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rskip.connections import Place, build_connection, build_stack_connection

ROOT = Path(__file__).parents[2]
FILE = ROOT / "rskip" / "connections" / "test_vectors.json"
CASES: list[dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))["cases"]


def read(values: dict[str, Any]) -> dict[str, Tensor]:
    return {name: torch.tensor(each, dtype=torch.float64, requires_grad=True) for name, each in values.items()}


@pytest.mark.parametrize("case", CASES, ids=[case["spec"] for case in CASES])
def test_our_connections_reproduce_them(case):
    """As docs/own_connection.md says."""
    place = Place("decoder", "self_attn", sublayer=5, sublayers=6, layer=3, layers=3)
    connection: Any = build_connection(case["spec"], 4, place=place).double()
    stack: Any = build_stack_connection(case["spec"], 4).double()
    inputs, parameters = read(case["inputs"]), read(case["parameters"])
    for name, value in parameters.items():
        owner = stack if name.startswith("stack.") else connection
        owner.get_parameter(name.removeprefix("stack.")).data = value.detach()
    history = case["spec"].startswith("attnres")
    given, kept = connection.before(tuple(inputs["state"].unbind(-2)) if history else inputs["state"])
    state: Any = connection.after(kept, inputs["f"])
    outputs = {"given": given, "state": torch.stack(state, -2) if history else state, "left": stack.leave(state)}
    loss = torch.zeros((), dtype=torch.float64)
    for name, expected in read(case["outputs"]).items():
        torch.testing.assert_close(outputs[name], expected.detach(), rtol=1e-12, atol=1e-12)
        loss = loss + (torch.tensor(case["loss_weights"][name], dtype=torch.float64) * outputs[name]).sum()
    own = {f"stack.{name}": each for name, each in stack.named_parameters()} | dict(connection.named_parameters())
    variables = {name: inputs.get(name, own.get(name)) for name in case["gradients"]}
    for name, found in zip(variables, torch.autograd.grad(loss, list(variables.values())), strict=True):
        torch.testing.assert_close(found.tolist(), case["gradients"][name], rtol=1e-11, atol=1e-11)


def test_a_transposed_matrix_of_hyper_is_seen():
    """R is indexed [from, to], and the case has no symmetric one."""
    case = CASES[0]
    connection: Any = build_connection(case["spec"], 4, place=Place("decoder", "self_attn", 5, 6, 3, 3)).double()
    for name, value in read(case["parameters"]).items():
        connection.get_parameter(name).data = value.detach()
    h, f = (torch.tensor(case["inputs"][name], dtype=torch.float64) for name in ("state", "f"))
    weights, outputs = connection.weights(h)
    wrong = weights[..., 1:] @ h + outputs * f.unsqueeze(-2)
    assert (wrong - torch.tensor(case["outputs"]["state"], dtype=torch.float64)).abs().max() > 0.1


def mhc(
    case: dict[str, Any], *, transposed: bool = False, each_stream: bool = False, divisions: int = 39,
    sinkhorn: float = 1e-6, exponentials: bool = False, rms: float = 1e-5, gate: float | None = None, beta: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """The formula of a case of `mhc`, or a common fault: the branch's input, and the streams after the block."""
    h, f = read(case["inputs"]).values()
    own, n = read(case["parameters"]), 3
    gate = (1e-6 if "gate_eps" in case["spec"] else 0.0) if gate is None else gate
    over = (-1,) if each_stream else (-2, -1)
    flat = (h / (h.square().mean(over, keepdim=True) + rms).sqrt()).flatten(-2)
    u, v, w = (flat @ own["mixing"].T).split([n, n, n * n], -1)
    scale, bias = own["scale"], own["bias"].split([n, n, n * n])
    enters, outputs = (scale[0] * u + bias[0]).sigmoid() + gate, 2 * (scale[1] * v + bias[1]).sigmoid() + beta
    logits = (scale[2] * w + bias[2]).unflatten(-1, (n, n))
    r = logits.exp() if exponentials else logits.softmax(-1) + sinkhorn
    for at in range(divisions):
        r = r / (r.sum(-1 if at % 2 else -2, keepdim=True) + sinkhorn)
    mixed = (enters.unsqueeze(-1) * h).sum(-2)
    given = own["norm.weight"] * mixed / (mixed.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    return given, (r if transposed else r.mT) @ h + outputs.unsqueeze(-1) * f.unsqueeze(-2)


@pytest.mark.parametrize(
    ("fault", "given", "state"),
    [
        ({}, (0, 1e-15), (0, 1e-15)),
        ({"transposed": True}, (0, 1e-15), (0.5, 1.2)),
        ({"each_stream": True}, (0.01, 0.03), (0.3, 0.5)),
        ({"divisions": 5}, (0, 1e-15), (1e-3, 1e-2)),
        ({"sinkhorn": 0.0}, (0, 1e-15), (3e-6, 4e-6)),
        ({"exponentials": True}, (0, 1e-15), (3e-6, 4e-6)),
        ({"rms": 1e-6}, (2e-7, 2e-6), (7e-6, 7e-6)),
        ({"gate": 0.0}, (0, 4e-7), (0, 1e-15)),
        ({"beta": 1e-6}, (0, 1e-15), (2e-6, 2e-6)),
    ],
)
def test_faults_make_the_differences_that_the_page_lists(fault, given, state):
    """The table of docs/own_connection.md, each value rounded to one digit."""
    for case in CASES[1:3]:
        expected = read(case["outputs"])
        for found, name, (low, high) in zip(mhc(case, **fault), ("given", "state"), (given, state), strict=True):
            difference = float((found - expected[name]).abs().max().detach())
            assert low <= float(f"{difference:.0e}") <= high


def test_the_script_writes_them():
    spec: Any = importlib.util.spec_from_file_location("script", ROOT / "scripts" / "write_test_vectors.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    made, size = script.vectors(), FILE.stat().st_size
    assert [case["formula"] for case in made["cases"]] == [case["formula"] for case in CASES] and size < 100_000
    for one, other in zip(made["cases"], CASES, strict=True):
        torch.testing.assert_close(one["inputs"] | one["gradients"], other["inputs"] | other["gradients"])
