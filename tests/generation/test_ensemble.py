"""Several models that decode as one."""

from __future__ import annotations

import math

import pytest
import torch

from rskip.generation import SearchOptions
from rskip.generation.ensemble import EnsembleDecoder
from rskip.transformer import Transformer, TransformerConfig
from tests.generation.conftest import TableDecoder, assert_equal, random_table

END, A, B, C = 2, 4, 5, 6

FIRST = {(): {A: 0.8, B: 0.2}, (A,): {END: 0.3, C: 0.7}, (B,): {END: 1.0}}
SECOND = {(): {A: 0.1, B: 0.6, C: 0.3}, (A,): {END: 0.9, C: 0.1}, (B,): {END: 0.5, A: 0.5}}
MEAN = {(): {A: 0.45, B: 0.4, C: 0.15}, (A,): {END: 0.6, C: 0.4}, (B,): {END: 0.75, A: 0.25}}


def test_two_tables_are_their_mean(search):
    ensemble = EnsembleDecoder([TableDecoder(FIRST), TableDecoder(SECOND)])
    for beam in (1, 2, 4):
        found = search(ensemble, memory=[[0], [0]], source_lengths=[5], beam=beam, nbest=beam)
        assert_equal(found, search(MEAN, beam=beam, nbest=beam))


def test_temperature_is_each_models(search):
    """softmax(log p / T) of each, then the mean; the mean's own would be another distribution."""
    ensemble = EnsembleDecoder([TableDecoder(FIRST), TableDecoder(SECOND)], temperature=0.5)
    best = search(ensemble, memory=[[0], [0]], source_lengths=[5], beam=1)[0][0]
    first, then = (0.64 / 0.68 + 0.01 / 0.46) / 2, (0.09 / 0.58 + 0.81 / 0.82) / 2
    assert best.tokens.tolist() == [A, END]
    assert best.score == pytest.approx(math.log(first * then) / 2, abs=1e-6)


def test_attention_is_the_mean(search):
    tables = [random_table(f"attends {number}") for number in range(2)]
    decoders = [TableDecoder(tables[0]), TableDecoder(*tables)]
    weights = torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.2, 0.7]])
    for decoder, weight in zip(decoders, weights, strict=True):
        decoder.attention_of = lambda sentence, prefix, weight=weight: weight
    settings = {"source_lengths": [3], "attention": True, "max_length_b": 6}
    hypothesis = search(EnsembleDecoder(decoders), memory=[[0], [1]], **settings)[0][0]
    expected = torch.tensor([0.3, 0.225, 0.475]).expand(len(hypothesis.tokens), 3)
    torch.testing.assert_close(hypothesis.attention, expected)


def test_the_shortest_reach_counts():
    for reaches, shortest in (((None, None), None), ((30, None, 20), 20)):
        decoders = [TableDecoder(FIRST, max_positions=each) for each in reaches]
        assert EnsembleDecoder(decoders).max_positions == shortest


def transformer(seed, connection, features, layers):
    torch.manual_seed(seed)
    sizes = {"embed_dim": features, "ffn_embed_dim": 24, "attention_heads": 4, "layers": layers}
    sizes["connection"] = connection
    sides = {f"{side}_{key}": value for side in ("encoder", "decoder") for key, value in sizes.items()}
    model = Transformer(TransformerConfig(23, 29, **sides)).eval()
    for parameter in model.decoder.parameters():  # nothing learnt: larger weights make it decided
        parameter.data *= 1.5
    return model


@torch.no_grad()
def test_different_connections_and_sizes(each_search):
    """The search's scores are those of each hypothesis under the mean of what the models say of it at once."""
    source = torch.tensor([[4, 9, 14, 3, 7, 2], [8, 20, 2, 1, 1, 1], [5, 5, 17, 11, 2, 1]])
    lengths = torch.tensor([6, 3, 5])
    shapes = ("1xskip+ln", 16, 2), ("2rskip+ln", 32, 3), ("prenorm+ln", 8, 1)
    models = [transformer(seed, *shape) for seed, shape in enumerate(shapes)]
    options = SearchOptions(beam=3, nbest=3, max_length_b=12, token_scores=True, attention=True)
    memories = [model.encode(source) for model in models]
    found = each_search(EnsembleDecoder(models), memories, options, source_lengths=lengths)
    for sentence, hypotheses in enumerate(found):
        for hypothesis in hypotheses:
            tokens = hypothesis.tokens
            prefix = torch.cat([torch.tensor([END]), tokens[:-1]])[None]
            own = source[sentence : sentence + 1, : lengths[sentence]]
            probabilities = torch.stack([model(own, prefix)[0].softmax(-1) for model in models]).mean(0)
            expected = probabilities.log()[torch.arange(len(tokens)), tokens]
            torch.testing.assert_close(hypothesis.token_scores, expected, rtol=0, atol=1e-4)
