"""Over random tables, with many settings, our search finds exactly what fairseq's does."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from rskip.generation import SearchOptions

VOCABULARY, SOURCE, COUNT = 8, 5, 8


class Words:
    """What fairseq's search asks of a dictionary."""

    def __len__(self):
        return VOCABULARY

    def pad(self):
        return 1

    def eos(self):
        return 2

    def unk(self):
        return 3


class Encoder(nn.Module):
    def forward_torchscript(self, net_input):
        return {"sentences": net_input["src_tokens"][:, 0]}

    def reorder_encoder_out(self, memory, order):
        return {"sentences": memory["sentences"][order]}


class Decoder(nn.Module):
    def __init__(self, tables):
        super().__init__()
        self.tables = tables

    def forward(self, tokens, encoder_out):
        rows = zip(encoder_out["sentences"].tolist(), tokens[:, 1:].tolist(), strict=True)
        rows = [(sentence, tuple(prefix)) for sentence, prefix in rows]
        logits = torch.cat([self.tables.log_probabilities(sentence, [prefix]) for sentence, prefix in rows])
        attention = torch.stack([self.tables.attention_of(sentence, prefix) for sentence, prefix in rows])
        return logits[:, None], {"attn": [attention[:, None]]}


class Model(nn.Module):
    """What fairseq's search asks of a model, answered from tables."""

    def __init__(self, tables):
        super().__init__()
        self.encoder, self.decoder = Encoder(), Decoder(tables)

    def get_normalized_probs(self, output, log_probs, sample):
        return output[0].log_softmax(-1)

    def max_decoder_positions(self):
        return 1000


SETTINGS = [
    {},
    {"beam": 1, "nbest": 1},
    {"beam": 2, "nbest": 2},
    {"beam": 5, "nbest": 5},
    {"length_penalty": 0},
    {"length_penalty": 1.6},
    {"length_penalty": -0.5},
    {"min_length": 0},
    {"min_length": 4},
    {"max_length_b": 1},
    {"max_length_b": 3},
    {"max_length_a": 0.7, "max_length_b": 1},
    {"unknown_penalty": 1.5},
    {"unknown_penalty": -1.5},
    {"temperature": 0.4},
    {"temperature": 2.5},
    {"no_repeat_ngram": 2},
    {"no_repeat_ngram": 3, "min_length": 7},
    {"beam": 3, "nbest": 3, "unknown_penalty": 0.5, "temperature": 1.5, "length_penalty": 0.6, "no_repeat_ngram": 2},
]


@pytest.mark.parametrize("forced", [False, True], ids=["free", "prefix"])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_equal(each_search, fairseq_search, table_decoder, random_table, settings, forced):
    options = SearchOptions(
        **{"beam": 4, "nbest": 4, "max_length_b": 9, "token_scores": True, "attention": True, **settings}
    )
    tables = table_decoder(*(random_table(f"fairseq {number}") for number in range(COUNT)))
    source = torch.full((COUNT, SOURCE), 4)
    source[:, 0] = torch.arange(COUNT)
    prefix = None
    if forced:  # one token, or two that differ
        prefix = torch.tensor([[4 + number % 3, 1 if number % 2 else 7] for number in range(COUNT)])
        if options.min_length > 1:  # beside a longer prefix, fairseq forgets it for sentences with a shorter one
            prefix = prefix[:, :1]
    expected = fairseq_search([Model(tables)], Words(), source, options, prefix)
    lengths = torch.full((COUNT,), SOURCE)
    results = each_search(tables, range(COUNT), options, source_lengths=lengths, prefix=prefix)
    assert len({len(each.tokens) for hypotheses in expected for each in hypotheses}) > (options.max_length_b > 1)
    for ours, theirs in zip(results, expected, strict=True):
        assert [each.tokens.tolist() for each in ours] == [each.tokens.tolist() for each in theirs]
        assert [each.score for each in ours] == pytest.approx([each.score for each in theirs], abs=1e-5)
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one.token_scores, other.token_scores, rtol=0, atol=1e-5)
            assert torch.equal(one.attention, other.attention)
