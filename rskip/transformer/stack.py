"""Shared parts of the encoder's and decoder's stacks: LayerDrop, activation checkpointing, closing norm."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from rskip.connections import State, build_norm, parse_connection
from rskip.transformer.state import LayerCache
from rskip.transformer.value_residual import FirstValues


def layers_to_run(layers: nn.ModuleList, layerdrop: float, *, training: bool) -> Iterator[nn.Module]:
    """All layers; in training each is skipped with probability `layerdrop` (Fan et al. 2020)."""
    for layer in layers:
        if not (training and layerdrop > 0 and torch.rand(()).item() < layerdrop):
            yield layer


def run_layer(
    layer: nn.Module, state: State, *inputs: Tensor | FirstValues | LayerCache | None, checkpointed: bool
) -> State:
    """The state after the layer. `checkpointed` recomputes its activations in the backward pass to save memory."""
    if checkpointed and torch.is_grad_enabled():
        return checkpoint(layer, state, *inputs, use_reentrant=False)
    return layer(state, *inputs)


def compile_layers(*stacks: nn.ModuleList, backend: str = "inductor") -> None:
    """Compiles the layers with torch.compile on their first run: each kind once, for any number and length of
    sentences."""
    for layers in stacks:
        for layer in layers:
            layer.compile(dynamic=True, backend=backend)


def build_closing_norm(connection: str, features: int) -> nn.Module | None:
    """The normalisation that closes a stack whose connection does not normalise its output (pre-norm), or None."""
    norm = parse_connection(connection).closing_norm
    return build_norm(norm, features) if norm else None
