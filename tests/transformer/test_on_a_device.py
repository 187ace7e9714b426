"""The Transformer on another device than the CPU: the same numbers, and nothing that waits for the device."""

from __future__ import annotations

import copy

import pytest
import torch


def outcome(model, source, prefix):
    """The logits, and the gradients of their square."""
    logits = model(source, prefix)
    logits.square().sum().backward()
    return [logits, *(each.grad for each in model.parameters())]


@pytest.mark.parametrize("left", [False, True], ids=["", "prefixes padded on the left"])
@pytest.mark.parametrize("connection", ["1xskip+ln", "2rskip+ln", "sas", "prenorm+ln"], indirect=True)
def test_forward_and_backward(build, source, prefix, connection, left, emulated_cuda):
    model = build(connection, share_decoder_input_output_embed=True)
    if left:
        prefix[1, :2] = 1
    on_device = copy.deepcopy(model).to("cuda")
    source_there, prefix_there = source.to("cuda"), prefix.to("cuda")
    emulated_cuda.clear()
    computed = outcome(on_device, source_there, prefix_there)
    assert not emulated_cuda.synchronisations
    for here, there in zip(outcome(model, source, prefix), computed, strict=True):
        torch.testing.assert_close(there.cpu(), here, rtol=1e-9, atol=1e-9)
