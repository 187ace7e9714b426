"""Over random tables, with many settings, our search finds exactly what fairseq's does."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from rskip.generation import Hypothesis, SearchOptions
from tests.generation.conftest import TableDecoder, assert_equal, random_table

sequence_generator = pytest.importorskip("fairseq.sequence_generator", reason="needs fairseq: `rskip setup-fairseq`")
fairseq_data = pytest.importorskip("fairseq.data")
ngram_repeat_block = pytest.importorskip("fairseq.ngram_repeat_block")

SOURCE, COUNT = 5, 8
WORDS = fairseq_data.Dictionary()
for letter in "abcd":
    WORDS.add_symbol(letter)


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


class RepeatBlock(nn.Module):
    """fairseq 0.12.2 gives its block rows with padding to the max length behind them. Without CUDA that block then
    compares the padding and forbids nothing; it gets the rows alone here."""

    def __init__(self, size):
        super().__init__()
        self.block = ngram_repeat_block.NGramRepeatBlock(size, use_extension=False)

    def forward(self, tokens, scores, batch, beam, step):
        return self.block(tokens[:, : step + 1], scores, batch, beam, step)


def fairseq_search(tables, source, options, prefix):
    """fairseq's own beam search with our options, as our hypotheses."""
    generator = sequence_generator.SequenceGenerator(
        [Model(tables)], WORDS, beam_size=options.beam, max_len_a=options.max_length_a,
        max_len_b=options.max_length_b, min_len=options.min_length, len_penalty=options.length_penalty,
        unk_penalty=options.unknown_penalty, temperature=options.temperature,
    )  # fmt: skip
    if options.no_repeat_ngram:
        generator.repeat_ngram_blocker = RepeatBlock(options.no_repeat_ngram)
    sample = {"net_input": {"src_tokens": source, "src_lengths": source.ne(1).sum(1)}}
    return [
        [
            Hypothesis(each["tokens"], each["score"].item(), each["positional_scores"], each["attention"].T)
            for each in hypotheses[: options.nbest]
        ]
        for hypotheses in generator.generate([Model(tables)], sample, prefix_tokens=prefix)
    ]


SETTINGS = [
    {}, {"beam": 1, "nbest": 1}, {"beam": 5, "nbest": 5, "min_length": 0},
    *({"length_penalty": each} for each in (0, 1.6, -0.5)), {"min_length": 4}, {"max_length_b": 1},
    {"max_length_a": 0.7, "max_length_b": 1}, *({"unknown_penalty": each} for each in (1.5, -1.5)),
    *({"temperature": each} for each in (0.4, 2.5)), {"no_repeat_ngram": 2}, {"no_repeat_ngram": 3, "min_length": 7},
    {"beam": 3, "nbest": 3, "unknown_penalty": 0.5, "temperature": 1.5, "length_penalty": 0.6, "no_repeat_ngram": 2},
]  # fmt: skip


@pytest.mark.parametrize("forced", [False, True], ids=["free", "prefix"])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_equal(each_search, settings, forced):
    options = SearchOptions(
        **{"beam": 4, "nbest": 4, "max_length_b": 9, "token_scores": True, "attention": True, **settings}
    )
    tables = TableDecoder(*(random_table(f"fairseq {number}") for number in range(COUNT)))
    source = torch.full((COUNT, SOURCE), 4)
    source[:, 0] = torch.arange(COUNT)
    prefix = None
    if forced:  # one token, or two that differ
        prefix = torch.tensor([[4 + number % 3, 1 if number % 2 else 7] for number in range(COUNT)])
        if options.min_length > 1:  # beside a longer prefix, fairseq forgets it for sentences with a shorter one
            prefix = prefix[:, :1]
    expected = fairseq_search(tables, source, options, prefix)
    lengths = torch.full((COUNT,), SOURCE)
    results = each_search(tables, range(COUNT), options, source_lengths=lengths, prefix=prefix)
    assert len({len(each.tokens) for hypotheses in expected for each in hypotheses}) > (options.max_length_b > 1)
    assert_equal(results, expected, token=1e-5)
