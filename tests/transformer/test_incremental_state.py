"""Beams that are reordered, multiplied and dropped go on as if each had been decoded from its own beginning."""

from __future__ import annotations

import pytest
import torch

from rskip.transformer.attention import record_weights

STEPS = 40


def check(model, memory, histories, logits):
    """Each beam's logits against those of its whole history, decoded at once. histories (B, K, T)."""
    for row in range(histories.size(0)):
        alone = memory.reorder(torch.full((histories.size(1),), row))
        full = model.decode(histories[row], alone)[:, -1]
        torch.testing.assert_close(logits[row], full, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("widths", "removal"),  # beams of each step, in turn; the share of sentences that every ninth step drops
    [((1,), 0.08), ((4,), 0.0), ((3, 1, 5, 2), 0.0), ((3, 1, 5, 2), 0.5), ((2, 50), 0.08)],
    ids=str,
)
def test_any_sequence_of_reorderings(build, widths, removal):
    model = build("2rskip+ln")
    draw = torch.Generator().manual_seed(len(widths))
    source = torch.randint(4, 23, (12, 6), generator=draw)
    source[::2, 4:] = 1
    memory = model.encode(source)
    state = model.start(memory)
    histories = torch.randint(4, 29, (12, 1, 1), generator=draw)
    for step in range(STEPS):
        logits = model.step(histories[:, :, -1], state)
        if step % 10 == 0 or step > STEPS - 3:
            check(model, memory, histories, logits)
        stay = torch.rand(len(histories), generator=draw) >= removal * (step % 9 == 8)
        stay[0] = True
        sentences = stay.nonzero().squeeze(1)
        sentences = sentences[torch.randperm(len(sentences), generator=draw)] if step % 2 else sentences
        width = widths[step % len(widths)]
        parents = torch.randint(0, histories.size(1), (len(sentences), width), generator=draw)
        model.reorder(state, parents, None if stay.all() and step % 2 == 0 else sentences)
        memory = memory.reorder(sentences)
        histories = histories[sentences[:, None], parents]
        tokens = torch.randint(4, 29, (len(sentences), width, 1), generator=draw)
        histories = torch.cat([histories, tokens], 2)


def test_attention_is_that_of_the_last_layer(build, source, prefix):
    model = build("2rskip+ln", decoder_layers=2)
    memory = model.encode(source)
    with record_weights(model.decoder.decoder_layers()[-1].encoder_attn) as expected:
        model.decode(prefix, memory)
    state = model.start(memory, attention=True)
    for position, tokens in enumerate(prefix.T):
        model.step(tokens[:, None], state)
        weights = expected[0][:, position].double()
        torch.testing.assert_close(state.attention[:, 0].double(), weights, rtol=0, atol=1e-6)


def test_a_state_leaves_the_memory_as_it_was(build):
    """Holds also when sentences leave the state, which moves rows of its mask."""
    model = build()
    source = torch.randint(4, 23, (8, 6), generator=torch.Generator().manual_seed(0))
    source[1, 3:] = 1
    memory = model.encoder.encode(source)
    before = [each.clone() for each in (memory.states, memory.padding, memory.mask)]
    state = model.decoder.start(memory)
    model.decoder.step(torch.full((8, 1), 2), state)
    sentences = torch.tensor([0, 7, 2, 3, 4, 5, 6])  # the last one, without padding, replaces the padded one
    state.reorder(torch.zeros(7, 1, dtype=torch.long), sentences)
    for found, expected in zip((memory.states, memory.padding, memory.mask), before, strict=True):
        assert torch.equal(found, expected)


def test_what_no_beam_sees_takes_no_room(build):
    model, steps, beams = build(), 150, 5
    state = model.start(model.encode(torch.full((2, 3), 4)))
    for _ in range(steps):
        model.step(torch.full((2, state.mask.size(2)), 2), state)
        state.reorder(torch.zeros(2, beams, dtype=torch.long))
    assert state.layers[0].target.key.size(2) == state.mask.size(3) < 2 * steps < beams * steps
