"""Several models that decode as one."""

from __future__ import annotations

import math

import pytest
import torch

from rskip.generation import SearchOptions
from rskip.generation.ensemble import EnsembleDecoder
from rskip.transformer import Transformer, TransformerConfig

END, A, B, C = 2, 4, 5, 6

FIRST = {(): {A: 0.8, B: 0.2}, (A,): {END: 0.3, C: 0.7}, (B,): {END: 1.0}}
SECOND = {(): {A: 0.1, B: 0.6, C: 0.3}, (A,): {END: 0.9, C: 0.1}, (B,): {END: 0.5, A: 0.5}}
MEAN = {(): {A: 0.45, B: 0.4, C: 0.15}, (A,): {END: 0.6, C: 0.4}, (B,): {END: 0.75, A: 0.25}}


@pytest.mark.parametrize("beam", [1, 2, 4])
def test_two_tables_are_their_mean(search, table_decoder, beam):
    ensemble = EnsembleDecoder([table_decoder(FIRST), table_decoder(SECOND)])
    settings = {"beam": beam, "nbest": beam}
    mine = search(ensemble, memory=[[0], [0]], source_lengths=[5], **settings)[0]
    expected = search(MEAN, **settings)[0]
    assert [each.tokens.tolist() for each in mine] == [each.tokens.tolist() for each in expected]
    assert [each.score for each in mine] == pytest.approx([each.score for each in expected], abs=1e-6)


def test_temperature_is_each_models(search, table_decoder):
    """softmax(log p / T) of each, then the mean; the mean's own would be another distribution."""
    ensemble = EnsembleDecoder([table_decoder(FIRST), table_decoder(SECOND)], temperature=0.5)
    best = search(ensemble, memory=[[0], [0]], source_lengths=[5], beam=1)[0][0]
    first = (0.64 / 0.68 + 0.01 / 0.46) / 2
    then = (0.09 / 0.58 + 0.81 / 0.82) / 2
    assert best.tokens.tolist() == [A, END]
    assert best.score == pytest.approx(math.log(first * then) / 2, abs=1e-6)


def test_attention_is_the_mean(search, table_decoder, random_table):
    tables = [random_table(f"attends {number}") for number in range(2)]
    decoders = [table_decoder(tables[0]), table_decoder(*tables)]
    ensemble = EnsembleDecoder(decoders)
    weights = torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.2, 0.7]])
    for decoder, weight in zip(decoders, weights, strict=True):
        decoder.attention_of = lambda sentence, prefix, weight=weight: weight
    hypothesis = search(ensemble, memory=[[0], [1]], source_lengths=[3], attention=True, max_length_b=6)[0][0]
    assert len(hypothesis.tokens) > 1
    expected = torch.tensor([0.3, 0.225, 0.475]).expand(len(hypothesis.tokens), 3)
    torch.testing.assert_close(hypothesis.attention, expected)


def test_the_shortest_reach_counts(table_decoder):
    assert EnsembleDecoder([table_decoder(FIRST), table_decoder(FIRST)]).max_positions is None
    bounded = [table_decoder(FIRST, max_positions=each) for each in (30, None, 20)]
    assert EnsembleDecoder(bounded).max_positions == 20


def transformer(seed, connection="1xskip+ln", features=16, layers=2):
    torch.manual_seed(seed)
    sides = {
        f"{side}_{key}": value
        for side in ("encoder", "decoder")
        for key, value in {"embed_dim": features, "ffn_embed_dim": 24, "attention_heads": 4, "layers": layers}.items()
    }
    connections = {"encoder_connection": connection, "decoder_connection": connection}
    model = Transformer(TransformerConfig(23, 29, **sides, **connections)).eval()
    for parameter in model.decoder.parameters():  # nothing learnt: larger weights make it decided
        parameter.data *= 1.5
    return model


SOURCE = torch.tensor([[4, 9, 14, 3, 7, 2], [8, 20, 2, 1, 1, 1], [5, 5, 17, 11, 2, 1]])
LENGTHS = torch.tensor([6, 3, 5])
OPTIONS = SearchOptions(beam=3, nbest=3, max_length_b=12, token_scores=True, attention=True)


def test_different_connections_and_sizes(each_search):
    """The search's scores are those of each hypothesis under the mean of what the models say of it at once."""
    models = [transformer(1), transformer(2, "2rskip+ln", 32, 3), transformer(3, "prenorm+ln", 8, 1)]
    memories = [model.encode(SOURCE) for model in models]
    found = each_search(EnsembleDecoder(models), memories, OPTIONS, source_lengths=LENGTHS)
    for sentence, hypotheses in enumerate(found):
        for hypothesis in hypotheses:
            tokens = hypothesis.tokens
            prefix = torch.cat([torch.tensor([END]), tokens[:-1]])[None]
            source = SOURCE[sentence : sentence + 1, : LENGTHS[sentence]]
            with torch.no_grad():
                probabilities = [model(source, prefix)[0].softmax(-1) for model in models]
            expected = torch.stack(probabilities).mean(0).log()[torch.arange(len(tokens)), tokens]
            torch.testing.assert_close(hypothesis.token_scores, expected, rtol=0, atol=1e-4)
