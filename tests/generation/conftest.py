"""Decoders with known probabilities."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rskip.cpu import find_library
from rskip.generation import Hypothesis, SearchOptions, SpecialTokens, StepDecoder, beam_search
from rskip.generation.compiled_steps import compiled_beam_search

Prefix = tuple[int, ...]
Distribution = Mapping[int, float]
Table = Mapping[Prefix, Distribution] | Callable[[Prefix], Distribution]

END = 2
SOURCE = 5  # source tokens that the decoders attend to


@dataclass
class TableState:
    """sentences: their numbers, of each row. prefixes: of each beam of each row, without the start."""

    sentences: list[int]
    prefixes: list[list[Prefix]]
    wants_attention: bool
    started: bool = False
    attention: Tensor | None = None


class TableDecoder:
    """A `StepDecoder` that looks the next token up, in each sentence's table of prefix -> token -> probability.

    After a prefix that a table doesn't list, the end follows. The memory is the sentences' numbers. asked: for each
    step, what the decoder was asked to go on from, sentence by sentence.
    """

    def __init__(self, *tables: Table, vocabulary: int = 8, start: int = END, max_positions: int | None = None) -> None:
        self.tables = tables
        self.vocabulary = vocabulary
        self.start_index = start
        self.max_positions = max_positions
        self.attention_of = attention_after
        self.asked: list[dict[int, list[Prefix]]] = []

    def start(self, memory: Sequence[int], *, attention: bool = False) -> TableState:
        return TableState(list(memory), [[()] for _ in memory], attention)

    def step(self, tokens: Tensor, state: TableState) -> Tensor:
        assert tokens.shape == (len(state.sentences), len(state.prefixes[0]))
        if state.started:
            for prefixes, row in zip(state.prefixes, tokens.tolist(), strict=True):
                prefixes[:] = [(*prefix, token) for prefix, token in zip(prefixes, row, strict=True)]
        else:
            assert tokens.eq(self.start_index).all()
            state.started = True
        rows = list(zip(state.sentences, state.prefixes, strict=True))
        self.asked.append({sentence: list(prefixes) for sentence, prefixes in rows})
        if state.wants_attention:
            state.attention = torch.stack(
                [
                    torch.stack([self.attention_of(sentence, prefix) for prefix in prefixes])
                    for sentence, prefixes in rows
                ]
            )
        return torch.stack([self._logits(sentence, prefixes) for sentence, prefixes in rows])

    def reorder(self, state: TableState, parents: Tensor, sentences: Tensor | None = None) -> None:
        kept = range(len(state.sentences)) if sentences is None else sentences.tolist()
        assert len(parents) == len(kept)
        state.sentences = [state.sentences[row] for row in kept]
        state.prefixes = [
            [state.prefixes[row][parent] for parent in row_parents]
            for row, row_parents in zip(kept, parents.tolist(), strict=True)
        ]

    def _logits(self, sentence: int, prefixes: Sequence[Prefix]) -> Tensor:
        """Logits (K, V), of which the search has to take the softmax: each row is off by a number of its own."""
        logits = self.log_probabilities(sentence, prefixes)
        return logits + torch.linspace(-3, 5, len(prefixes))[:, None]

    def log_probabilities(self, sentence: int, prefixes: Sequence[Prefix]) -> Tensor:
        """(K, V)."""
        probabilities = torch.zeros(len(prefixes), self.vocabulary, dtype=torch.float64)
        for row, prefix in enumerate(prefixes):
            table = self.tables[sentence]
            distribution = table(prefix) if callable(table) else table.get(prefix, {END: 1.0})
            assert sum(distribution.values()) == pytest.approx(1), prefix
            for token, probability in distribution.items():
                probabilities[row, token] = probability
        return probabilities.log().float()


def attention_after(sentence: int, prefix: Prefix) -> Tensor:
    """The attention (S,) when the token after `prefix` is chosen: other for each prefix."""
    generator = random.Random(f"attention {sentence} {prefix}")
    return torch.tensor([generator.random() for _ in range(SOURCE)]).softmax(0)


def random_table(name: str, vocabulary: int = 8) -> Table:
    """A distribution over the vocabulary without <s> and padding for every prefix, drawn by the name."""

    def distribution(prefix: Prefix) -> Distribution:
        generator = random.Random(f"{name} {prefix}")
        weights = {token: generator.gammavariate(0.5, 1) + 1e-3 for token in range(2, vocabulary)}
        total = sum(weights.values())
        return {token: weight / total for token, weight in weights.items()}

    return distribution


@pytest.fixture(params=["compiled", "pytorch"])
def each_search(request: pytest.FixtureRequest) -> Callable[..., list[list[Hypothesis]]]:
    """The compiled search, and that of PyTorch, which is its reference."""
    if request.param == "pytorch":
        return beam_search
    if find_library().library is None:
        pytest.skip("the kernels are not compiled here")
    return compiled_beam_search


@pytest.fixture(name="random_table")
def random_table_fixture() -> Callable[..., Table]:
    return random_table


@pytest.fixture(name="attention_after")
def attention_after_fixture() -> Callable[[int, Prefix], Tensor]:
    return attention_after


@pytest.fixture
def table_decoder() -> type[TableDecoder]:
    return TableDecoder


@pytest.fixture
def search(each_search: Callable[..., list[list[Hypothesis]]]) -> Callable[..., list[list[Hypothesis]]]:
    """Searches through tables, one a sentence, or a decoder of them, with these settings of `SearchOptions`."""

    def search(
        *tables: Table | StepDecoder,
        memory: Sequence[Any] | None = None,
        prefix: Sequence[Sequence[int]] | None = None,
        source_lengths: Sequence[int] | None = None,
        start_index: int | None = None,
        **settings: Any,
    ) -> list[list[Hypothesis]]:
        decoder = (
            tables[0]
            if hasattr(tables[0], "step")
            else TableDecoder(*tables, start=END if start_index is None else start_index)
        )
        memory = range(len(decoder.tables)) if memory is None else memory
        lengths = [SOURCE] * len(memory) if source_lengths is None else source_lengths
        return each_search(
            decoder,
            memory,
            SearchOptions(**settings),
            source_lengths=torch.tensor(lengths, dtype=torch.int64),
            prefix=None if prefix is None else torch.tensor(prefix),
            special=SpecialTokens(start=start_index),
        )

    return search


@pytest.fixture
def expect() -> Callable[..., None]:
    """Asserts that the hypotheses are these, in order, each (its tokens, its probability, its length penalty)."""

    def expect(hypotheses: Sequence[Hypothesis], *expected: tuple[Prefix, float, float]) -> None:
        assert [tuple(each.tokens.tolist()) for each in hypotheses] == [tokens for tokens, _, _ in expected]
        scores = [math.log(probability) / penalty for _, probability, penalty in expected]
        assert [each.score for each in hypotheses] == pytest.approx(scores, abs=2e-6)

    return expect


@pytest.fixture
def fairseq_search() -> Callable[..., list[list[Hypothesis]]]:
    """fairseq's own beam search over its models, with our options, as our hypotheses."""
    generators = pytest.importorskip("fairseq.sequence_generator", reason="needs fairseq: run `rskip setup-fairseq`")
    from fairseq.ngram_repeat_block import NGramRepeatBlock

    class RepeatBlock(nn.Module):
        """fairseq 0.12.2 gives its block rows with padding to the max length behind them. Without CUDA that
        block then compares the padding and forbids nothing; it gets the rows alone here."""

        def __init__(self, size: int) -> None:
            super().__init__()
            self.block = NGramRepeatBlock(size, use_extension=False)

        def forward(self, tokens: Tensor, scores: Tensor, batch: int, beam: int, step: int) -> Tensor:
            return self.block(tokens[:, : step + 1], scores, batch, beam, step)

    def search(
        models: Sequence[nn.Module],
        dictionary: Any,
        source: Tensor,
        options: SearchOptions,
        prefix: Tensor | None = None,
        temperature: float | None = None,
    ) -> list[list[Hypothesis]]:
        generator = generators.SequenceGenerator(
            models,
            dictionary,
            beam_size=options.beam,
            max_len_a=options.max_length_a,
            max_len_b=options.max_length_b,
            min_len=options.min_length,
            len_penalty=options.length_penalty,
            unk_penalty=options.unknown_penalty,
            temperature=options.temperature if temperature is None else temperature,
        )
        if options.no_repeat_ngram:
            generator.repeat_ngram_blocker = RepeatBlock(options.no_repeat_ngram)
        sample = {"net_input": {"src_tokens": source, "src_lengths": source.ne(1).sum(1)}}
        return [
            [
                Hypothesis(each["tokens"], each["score"].item(), each["positional_scores"], each["attention"].T)
                for each in hypotheses[: options.nbest]
            ]
            for hypotheses in generator.generate(models, sample, prefix_tokens=prefix)
        ]

    return search
