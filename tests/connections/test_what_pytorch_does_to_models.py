"""Every connection in a small model that is copied, checkpointed, vectorised, compiled and exported."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tests.connections.every_connection import FAMILIES, specs_on_text
from tests.connections.stack import FEATURES, Run, Stack, branch_inputs

# families whose state is a tuple between layers
TUPLES = {"siamese", "residual_dual", "denseformer", "attnres", "mudd", "x0", "lanes"}


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def drawn(spec: str, layers: int = 2) -> tuple[Stack, Tensor]:
    return Stack(spec, layers=layers).draw(), torch.randn(2, 3, FEATURES, dtype=torch.float64)


def gradients(model: Stack, x: Tensor, run: Run | None = None) -> Sequence[Tensor]:
    x = x.clone().requires_grad_()
    y = model(x) if run is None else model(x, run)
    return torch.autograd.grad(y.square().sum(), [x, *model.parameters()])


@pytest.mark.parametrize("family", FAMILIES)
def test_a_copy_computes_the_same(family):
    for spec in specs_on_text(family):
        model, x = drawn(spec)
        saved = io.BytesIO()
        torch.save(model.state_dict(), saved)
        saved.seek(0)
        loaded = Stack(spec, layers=2)
        loaded.load_state_dict(torch.load(saved))
        for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), loaded):
            assert torch.equal(twin(x), model(x)), spec


@pytest.mark.parametrize("family", FAMILIES)
def test_recomputed_blocks_give_the_same_gradients(family):
    for spec in specs_on_text(family):
        model, x = drawn(spec)
        expected = gradients(model, x)
        found = gradients(model, x, lambda block, *given: checkpoint(block, *given, use_reentrant=False))
        assert all(map(torch.equal, found, expected)), spec


@pytest.mark.parametrize("family", FAMILIES)
def test_recomputed_reentrantly_a_layer_gives_the_same_gradients_or_is_refused(family):
    """As in old trainers; a whole stack always can be."""
    for spec in specs_on_text(family):
        model, x = drawn(spec)
        expected = gradients(model, x)

        def backward(model: Stack, function, *given) -> Sequence[Tensor | None]:
            x = given[0].clone().requires_grad_()
            function(x).square().sum().backward()
            return [x.grad, *(parameter.grad for parameter in model.parameters())]

        def by_layer(x: Tensor, model: Stack = model) -> Tensor:
            def layer(state, first: int):
                return model.block(model.block(state, first), first + 1)

            state = model.stack.enter(x)
            for first in (0, 2):
                state = checkpoint(layer, state, first, use_reentrant=True)
            return model.closing(model.stack.leave(state))

        found = backward(model, lambda x, model=model: checkpoint(model, x, use_reentrant=True), x)
        for one, other in zip(found, expected, strict=True):  # x's gradient may be summed in another order
            torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12, msg=spec)
        model.zero_grad()
        if family in TUPLES or "reads=previous" in spec:
            with pytest.raises(RuntimeError, match=r" got a state that requires gradients .*use_reentrant=False"):
                backward(model, by_layer, x)
        else:
            assert all(map(torch.equal, backward(model, by_layer, x), expected)), spec


@pytest.mark.parametrize("family", FAMILIES)
def test_vectorised_over_examples_it_gives_the_same_with_gradients(family):
    for spec in specs_on_text(family):
        model, x = drawn(spec)
        per_example = torch.func.vmap(torch.func.grad_and_value(lambda x, model=model: model(x).square().sum()))
        gradient, value = per_example(x)
        torch.testing.assert_close(value, model(x).square().sum((1, 2)))
        torch.testing.assert_close(gradient, gradients(model, x)[0])


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_built_on_the_meta_device_it_takes_a_state_without_being_reset(family, assign):
    for spec in specs_on_text(family):
        model, x = drawn(spec)
        with torch.device("meta"):
            loaded = Stack(spec, layers=2)
        if not assign:
            loaded.to_empty(device="cpu")
            for tensor in (*loaded.parameters(), *loaded.buffers()):
                tensor.data.fill_(float("nan"))
        loaded.load_state_dict(model.state_dict(), assign=assign)
        assert torch.equal(loaded(x), model(x)), spec


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_compiled_and_exported_it_gives_the_same(family):
    spec = specs_on_text(family)[0] + (":iterations=2" if family == "mhc" else "")  # of 20 each is compiled
    model, x = drawn(spec, layers=1)
    torch.compiler.reset()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), model(x))
    torch.testing.assert_close(torch.export.export(model, (x,)).module()(x), model(x))


class Block(nn.Module):
    def __init__(self, model: Stack, number: int) -> None:
        super().__init__()
        self.connection = model.connections[number]
        self.branch = nn.Parameter(model.branches[number].detach())

    def forward(self, state):
        given, kept = self.connection.before(state)
        return self.connection.after(kept, torch.tanh(branch_inputs(self.connection, given, kept) @ self.branch))


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_compiled_per_block_a_deep_stack_needs_few_compilations(family):
    """But where the state grows from block to block, so that each layer is compiled: own_model.md."""
    spec = specs_on_text(family)[0] + (":iterations=2" if family == "mhc" else "")
    model, x = drawn(spec, layers=4)
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    with torch._dynamo.config.patch(recompile_limit=64):
        state = model.stack.enter(x)
        for number in range(8):
            block = Block(model, number)
            block.compile(backend="eager", fullgraph=True)
            state = block(state)
    torch.testing.assert_close(model.closing(model.stack.leave(state)), model(x))
    grows = family in ("denseformer", "attnres", "mudd")
    allowed = 8 if grows else 6 if family == "lanes" else 4  # lanes: one lane, two, and the first layer with two
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= allowed


@pytest.mark.slow
def test_on_two_processes_gradients_and_initial_values_are_those_of_one(tmp_path):
    """tests/connections/two_processes.py says how."""
    command = [sys.executable, "-m", "tests.connections.two_processes"]
    root = Path(__file__).parents[2]
    started = [subprocess.Popen([*command, str(rank), str(tmp_path / "store")], cwd=root) for rank in (0, 1)]
    assert [process.wait(timeout=600) for process in started] == [0, 0]
