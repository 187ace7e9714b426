"""A small model of a stack's blocks, for tests of any connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from rskip.connections import (
    HOST_NEEDS,
    Place,
    State,
    build_connection,
    build_norm,
    build_stack_connection,
    parse_connection,
)

Run = Callable[[Callable[[State, int], State], State, int], State]
FEATURES = 8
BRANCHES = {"encoder": ("self_attn", "ffn"), "decoder": ("self_attn", "encoder_attn", "ffn")}


def places_of(stack: str, layers: int, other_layers: int) -> list[Place]:
    branches = BRANCHES[stack]
    count = layers * len(branches)
    return [
        Place(stack, branch, number, count, (number - 1) // len(branches) + 1, layers, other_layers)
        for number, branch in enumerate(branches * layers, start=1)
    ]


def branch_inputs(connection: Any, given: Tensor, kept: State) -> Tensor:
    """The input of a branch that adds up its queries', keys' and values' inputs, where they differ."""
    total: Tensor = sum(connection.key_value_inputs(kept) or (), given)
    return total


class Stack(nn.Module):
    """Blocks with a branch tanh(x·M) each, as a model has them: enter, before, after, leave, closing norm."""

    def __init__(self, spec: str, stack: str = "encoder", layers: int = 3, other_layers: int = 2) -> None:
        super().__init__()
        self.places = places_of(stack, layers, other_layers)
        self.connections = nn.ModuleList(
            build_connection(spec, FEATURES, place=place, host_supplies=HOST_NEEDS) for place in self.places
        )
        self.stack = build_stack_connection(spec, FEATURES)
        closing = parse_connection(spec).closing_norm
        self.closing = nn.Identity() if closing is None else build_norm(closing, FEATURES)
        shape = (len(self.places), FEATURES, FEATURES)
        self.branches = nn.Parameter(torch.randn(shape, generator=torch.Generator().manual_seed(3)))
        self.double()

    def block(self, state: State, number: int) -> State:
        """The state after a block; `number` counts from 0."""
        connection: Any = self.connections[number]
        given, kept = connection.before(state)
        inputs = branch_inputs(connection, given, kept)
        after: State = connection.after(kept, torch.tanh(inputs @ self.branches[number]))
        return after

    def forward(self, x: Tensor, run: Run = lambda block, state, number: block(state, number)) -> Tensor:
        """:param run: calls a block, directly or by another way."""
        state = self.stack.enter(x)
        for number in range(len(self.connections)):
            state = run(self.block, state, number)
        y: Tensor = self.closing(self.stack.leave(state))
        return y

    def draw(self) -> Stack:
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                if name != "branches":
                    parameter.uniform_(0.3, 1.5, generator=generator)
        return self
