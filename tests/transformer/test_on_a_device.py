"""The Transformer on another device than the CPU: the same numbers, and nothing that waits for the device."""

from __future__ import annotations

import pytest
import torch

from rskip.transformer import Transformer, TransformerConfig
from tests.emulated_device import emulated_cuda


@pytest.mark.parametrize(
    ("connection", "calls"), [("1xskip+ln", 271), ("2rskip+ln", 311), ("sas", 681)], indirect=["connection"]
)
def test_calls_of_a_forward_and_backward_pass(connection, calls):
    """Of 2 + 2 layers in bfloat16; a step more of an optimiser is another matter. None waits for the device."""
    counts = forward_and_backward(connection)
    assert not counts.synchronisations
    assert counts.calls.total() <= calls


@pytest.mark.parametrize(
    ("connection", "calls"), [("1xskip+ln", 52), ("2rskip+ln", 64), ("sas", 154)], indirect=["connection"]
)
@torch.no_grad()
def test_calls_of_a_step(build, connection, calls):
    """Of 2 layers, with the reordering of its beams; none waits for the device."""
    with emulated_cuda() as counts:
        model = build(connection).to("cuda")
        state = model.start(model.encode(torch.full((3, 5), 4, device="cuda")))
        tokens, parents = torch.full((3, 4), 5, device="cuda"), torch.zeros(3, 4, dtype=torch.long, device="cuda")
        model.step(tokens[:, :1], state)
        for _ in range(2):
            model.reorder(state, parents)
            counts.clear()
            model.step(tokens, state)
        model.reorder(state, parents)
    assert not counts.synchronisations
    assert counts.calls.total() <= calls


def test_sas_moves_at_most_half_as_much_again_as_2rskip():
    """In bytes read and written, at the sizes of a Transformer-base and 4,096 tokens."""
    sas, rskip = (forward_and_backward(connection, 512, 128).traffic.total() for connection in ("sas", "2rskip+ln"))
    assert sas <= 1.5 * rskip


def forward_and_backward(connection, features=16, sentences=2):
    """The counts of 2 + 2 layers on features, in training mode, of sentences of 32 tokens."""
    sizes = {"embed_dim": features, "ffn_embed_dim": 4 * features, "attention_heads": 8, "layers": 2}
    sides = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in sizes.items()}
    connections = {f"{side}_connection": connection for side in ("encoder", "decoder")}
    with emulated_cuda(values=False) as counts:
        config = TransformerConfig(source_vocabulary=10, target_vocabulary=10, dropout=0.1, **sides, **connections)
        model = Transformer(config).to("cuda", torch.bfloat16)
        model.decoder.left_padded = False
        source, prefix = (torch.zeros(sentences, 32, dtype=torch.long, device="cuda") for _ in range(2))
        counts.clear()
        y = model.decoder.features(prefix, model.encoder(source))
        y.backward(torch.ones_like(y))
    return counts
