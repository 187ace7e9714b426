"""Padding changes nothing for the sentences that it fills up."""

from __future__ import annotations

import pytest
import torch


def pad(tokens, left, right):
    return torch.nn.functional.pad(tokens, (left, right), value=1)


def check(model, source, prefix, left, right):
    alone = model(source[:1], prefix[:1])
    tolerance = {"rtol": 0, "atol": 1e-10 * max(1, alone.abs().max().item())}
    torch.testing.assert_close(model(pad(source[:1], left, right), prefix[:1]), alone, **tolerance)
    padded = model(source[:1], pad(prefix[:1], left, right))[:, left : left + prefix.size(1)]
    torch.testing.assert_close(padded, alone, **tolerance)


def test_padding_of_every_connection(build, connection, source, prefix):
    check(build(connection), source, prefix, 2, 2)


@pytest.mark.parametrize("learned", [False, True])
def test_padding_on_either_side(build, source, prefix, learned):
    model = build("2rskip+ln", decoder_learned_pos=learned, encoder_learned_pos=learned)
    for left, right in ((3, 0), (0, 4), (2, 2)):
        check(model, source, prefix, left, right)


def test_no_position_sees_a_later_target_token(build, source, prefix):
    model = build("2rskip+ln")
    changed = prefix.clone()
    changed[:, 4:] = 5
    torch.testing.assert_close(model(source, prefix)[:, :4], model(source, changed)[:, :4], rtol=0, atol=0)
