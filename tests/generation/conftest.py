"""Decoders with known probabilities."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from rskip.cpu import find_library
from rskip.generation import Hypothesis, SearchOptions, beam_search
from rskip.generation.compiled_steps import compiled_beam_search

Prefix = tuple[int, ...]
Distribution = Mapping[int, float]
Table = Mapping[Prefix, Distribution] | Callable[[Prefix], Distribution]

END = 2
SOURCE = 5  # source tokens that the decoders attend to


class TableDecoder:
    """A `StepDecoder` that looks the next token up, in each sentence's table of prefix -> token -> probability.

    After a prefix that a table doesn't list, the end follows. The memory is the sentences' numbers. asked: for each
    step, what the decoder was asked to go on from, sentence by sentence.
    """

    def __init__(self, *tables: Table, vocabulary: int = 8, max_positions: int | None = None) -> None:
        self.tables, self.vocabulary, self.max_positions = tables, vocabulary, max_positions
        self.attention_of = attention_after
        self.asked: list[dict[int, list[Prefix]]] = []

    def start(self, memory: Sequence[int], *, attention: bool = False) -> Any:
        """The state: the numbers of the sentences of each row, and the prefixes of each beam, without the start."""
        prefixes: list[list[Prefix]] = [[()] for _ in memory]
        known = {"sentences": list(memory), "prefixes": prefixes, "wants_attention": attention}
        return SimpleNamespace(**known, started=False, attention=None)

    def step(self, tokens: Tensor, state: Any) -> Tensor:
        assert tokens.shape == (len(state.sentences), len(state.prefixes[0]))
        if state.started:
            for prefixes, row in zip(state.prefixes, tokens.tolist(), strict=True):
                prefixes[:] = [(*prefix, token) for prefix, token in zip(prefixes, row, strict=True)]
        else:
            assert tokens.eq(END).all()
            state.started = True
        rows = list(zip(state.sentences, state.prefixes, strict=True))
        self.asked.append({sentence: list(prefixes) for sentence, prefixes in rows})
        if state.wants_attention:
            attention = [[self.attention_of(sentence, prefix) for prefix in prefixes] for sentence, prefixes in rows]
            state.attention = torch.stack([torch.stack(each) for each in attention])
        # logits, of which the search has to take the softmax: each row is off by a number of its own
        off = torch.linspace(-3, 5, tokens.size(1))[:, None]
        return torch.stack([self.log_probabilities(sentence, prefixes) + off for sentence, prefixes in rows])

    def reorder(self, state: Any, parents: Tensor, sentences: Tensor | None = None) -> None:
        kept = range(len(state.sentences)) if sentences is None else sentences.tolist()
        assert len(parents) == len(kept)
        state.sentences = [state.sentences[row] for row in kept]
        state.prefixes = [
            [state.prefixes[row][parent] for parent in row_parents]
            for row, row_parents in zip(kept, parents.tolist(), strict=True)
        ]

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


def assert_equal(found, expected, context: object = "", *, score=1e-5, token=3e-5, attention=0.0) -> None:
    """Asserts that these are the same hypotheses, of NumPy or PyTorch."""
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert [each.tokens.tolist() for each in ours] == [each.tokens.tolist() for each in theirs], context
        assert [each.score for each in ours] == pytest.approx([each.score for each in theirs], score, score)
        for one, other in zip(ours, theirs, strict=True):
            for name, tolerance in (("token_scores", token), ("attention", attention)):
                own, their = getattr(one, name), getattr(other, name)
                assert (own is None) == (their is None), name
                if own is not None:
                    values = map(torch.as_tensor, (own, their))
                    torch.testing.assert_close(*values, rtol=0, atol=tolerance, equal_nan=True)


@pytest.fixture
def search(each_search: Callable[..., list[list[Hypothesis]]]) -> Callable[..., list[list[Hypothesis]]]:
    """Searches through tables, one a sentence, or a decoder of them, with these settings of `SearchOptions`."""

    def search(*tables, memory=None, prefix=None, source_lengths=None, **settings: Any) -> list[list[Hypothesis]]:
        decoder = tables[0] if hasattr(tables[0], "step") else TableDecoder(*tables)
        memory = range(len(decoder.tables)) if memory is None else memory
        lengths = torch.tensor([SOURCE] * len(memory) if source_lengths is None else source_lengths, dtype=torch.int64)
        prefix = None if prefix is None else torch.tensor(prefix)
        return each_search(decoder, memory, SearchOptions(**settings), source_lengths=lengths, prefix=prefix)

    return search


def expect(hypotheses: Sequence[Hypothesis], *expected: tuple[Prefix, float, float]) -> None:
    """Asserts that the hypotheses are these, in order, each (its tokens, its probability, its length penalty)."""
    assert [tuple(each.tokens.tolist()) for each in hypotheses] == [tokens for tokens, _, _ in expected]
    scores = [math.log(probability) / penalty for _, probability, penalty in expected]
    assert [each.score for each in hypotheses] == pytest.approx(scores, abs=2e-6)
