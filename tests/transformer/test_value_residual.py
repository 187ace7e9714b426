"""The value residual; test_inner_norms.py has its formula."""

from __future__ import annotations

import pytest
import torch

from rskip.cpu import find_library, for_inference
from rskip.transformer import Transformer


def test_the_first_layer_is_as_it_was_and_factors_start_at_half(build, source, prefix):
    single = {"encoder_layers": 1, "decoder_layers": 1}
    assert torch.equal(build(value_residual="learned", **single)(source, prefix), build(**single)(source, prefix))
    fixed = build(value_residual="fixed")
    learned = Transformer(build(value_residual="learned").config).double().eval()
    assert fixed.state_dict().keys() == build().state_dict().keys()
    added = {f"{stack}.layers.1.self_attn.value_residual.factors" for stack in ("decoder", "encoder")}
    loaded = learned.load_state_dict(fixed.state_dict(), strict=False)
    assert set(loaded.missing_keys) == added and not loaded.unexpected_keys
    torch.testing.assert_close(learned(source, prefix), fixed(source, prefix), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", ["fixed", "learned"])
def test_decoding_token_by_token(build, kind, source, prefix):
    """By the modules, reordered, and by the compiled kernels."""
    model = build("hybridnorm", value_residual=kind, encoder_layers=3, decoder_layers=3)
    order = torch.tensor([2, 0, 0])
    expected = model(source, prefix)[order]
    for tolerance in (1e-9, *([1e-5] if find_library().library else [])):
        state = model.start(model.encode(source))
        for tokens in prefix[:, :3].T:
            model.step(tokens[:, None], state)
        model.reorder(state, torch.zeros(3, 1, dtype=torch.int64), order)
        found = torch.cat([model.step(tokens[:, None], state) for tokens in prefix[order, 3:].T], dim=1)
        largest = expected.abs().max().item()
        torch.testing.assert_close(found.double(), expected[:, 3:], rtol=0, atol=tolerance * largest)
        model = for_inference(model, "float32")
