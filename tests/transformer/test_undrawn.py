"""Models that are built without random initial values, because weights are loaded afterwards."""

from __future__ import annotations

import torch
from torch import nn

from rskip.transformer import Transformer, TransformerConfig
from rskip.transformer.undrawn import undrawn


def test_nothing_is_drawn_and_the_random_generators_stay_where_they_were():
    config = TransformerConfig(9, 9, encoder_connection="sas", decoder_connection="2rskip+ln", encoder_learned_pos=True)
    torch.manual_seed(1)
    drawn = Transformer(config)
    state = torch.get_rng_state()
    with undrawn():
        assert torch.rand(()) != 0  # what is no parameter is drawn as ever
        parameter = nn.Parameter(torch.full((3, 3), 5.0))
        nn.init.normal_(parameter)
        nn.init.xavier_uniform_(parameter)
        assert (parameter == 5).all()
        model = Transformer(config)
    assert torch.equal(torch.get_rng_state(), state)
    model.load_state_dict(drawn.state_dict())
    tokens = torch.tensor([[5, 6, 2]])
    torch.testing.assert_close(model.eval()(tokens, tokens), drawn.eval()(tokens, tokens), rtol=0, atol=0)
