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


def test_a_transposed_residual_matrix_is_seen():
    """R is indexed [from, to], and no case has a symmetric one."""
    for case in CASES[:2]:
        connection: Any = build_connection(case["spec"], 4, place=Place("decoder", "self_attn", 5, 6, 3, 3)).double()
        for name, value in read(case["parameters"]).items():
            connection.get_parameter(name).data = value.detach()
        h, f = (torch.tensor(case["inputs"][name], dtype=torch.float64) for name in ("state", "f"))
        weights, outputs = connection.weights(h)
        wrong = weights[..., 1:] @ h + outputs * f.unsqueeze(-2)
        assert (wrong - torch.tensor(case["outputs"]["state"], dtype=torch.float64)).abs().max() > 0.1


def test_the_script_writes_them():
    spec: Any = importlib.util.spec_from_file_location("script", ROOT / "scripts" / "write_test_vectors.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    made, size = script.vectors(), FILE.stat().st_size
    assert [case["formula"] for case in made["cases"]] == [case["formula"] for case in CASES] and size < 100_000
    for one, other in zip(made["cases"], CASES, strict=True):
        torch.testing.assert_close(one["inputs"] | one["gradients"], other["inputs"] | other["gradients"])
