"""With trained models and real sentences, our search finds what fairseq's `SequenceGenerator` does."""

from __future__ import annotations

import dataclasses
import gzip
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rskip.checkpoint import build_transformer, read_checkpoint, to_stock
from rskip.generation import Hypothesis, SearchOptions, beam_search
from rskip.generation.ensemble import EnsembleDecoder
from rskip.text import Dictionary, Tokenizer
from rskip.transformer import Transformer

fairseq_models = pytest.importorskip("fairseq.models", reason="needs fairseq: run `rskip setup-fairseq`")

PAD, END = 1, 2
NAMES = ["multi30k_en_de/1xskip_ln", "multi30k_en_de/2rskip_ln"]
FEW, MANY = 5, 60
BATCH = 30


@dataclass
class Pair:
    """A trained model twice: ours, and as fairseq's."""

    ours: Transformer
    theirs: nn.Module
    source_dictionary: Any
    target_dictionary: Any


def fairseq_model(checkpoint, source, target):
    """fairseq's own `transformer` where it is one, otherwise rskip's model behind fairseq's interface."""
    import rskip.fairseq_plugin  # noqa: F401

    settings, state = dict(checkpoint.config["model"]), checkpoint.model
    arch = checkpoint.config["arch"]
    if settings["connection"] == "1xskip+ln":
        state = to_stock(state, connection=settings.pop("connection"))
        arch = "transformer"
    args = Namespace(arch=arch, **{name: value for name, value in settings.items() if name != "padding_index"})
    fairseq_models.ARCH_CONFIG_REGISTRY[arch](args)
    task = Namespace(source_dictionary=source, target_dictionary=target)
    model = fairseq_models.ARCH_MODEL_REGISTRY[arch].build_model(args, task).eval()
    missing, unexpected = model.load_state_dict(state, strict=False) if arch == "transformer" else ([], [])
    if arch != "transformer":
        model.load_state_dict(state)
    assert not unexpected and not [name for name in missing if name in dict(model.named_parameters())]
    return model


@pytest.fixture(scope="module")
def pairs(root: Path) -> dict[str, Pair]:
    from fairseq.data import Dictionary as FairseqDictionary

    pairs = {}
    for name in NAMES:
        folder = root / "checkpoints" / name
        checkpoint = read_checkpoint(folder / "model.safetensors")
        paths = [str(folder / f"dict.{language}.txt") for language in ("en", "de")]
        sizes = [len(Dictionary.load(path)) for path in paths]
        source, target = (FairseqDictionary.load(path) for path in paths)
        ours = build_transformer(checkpoint, source_vocabulary=sizes[0], target_vocabulary=sizes[1])
        pairs[name] = Pair(ours, fairseq_model(checkpoint, source, target), source, target)
    return pairs


def lines(shared: Path, language: str) -> list[str]:
    with gzip.open(shared / f"data/multi30k/test_2016_flickr.{language}.gz", "rt", encoding="utf-8") as file:
        return file.read().splitlines()


@pytest.fixture(scope="module")
def batches(root: Path, shared: Path) -> Callable[..., list[tuple[Tensor, Tensor]]]:
    """The first `count` test sentences in batches, longest first: source (B, S), padded on the left, and the first two
    tokens of their references (B, 2)."""
    folder = root / "checkpoints" / NAMES[0]
    tokenizer = Tokenizer.load(folder)
    english = [tokenizer.encode(line) for line in lines(shared, "en")]
    german = [tokenizer.encode_prefix(line)[:2] for line in lines(shared, "de")]

    def batches(count: int, *, equal_lengths: bool = False) -> list[tuple[Tensor, Tensor]]:
        """`equal_lengths`: batches without padding, since fairseq bounds a batch by its longest source alone."""
        order = sorted(range(count), key=lambda index: len(english[index]), reverse=True)
        groups: list[list[int]] = []
        for index in order:
            full = not groups or len(groups[-1]) == BATCH
            if full or (equal_lengths and len(english[groups[-1][0]]) != len(english[index])):
                groups.append([])
            groups[-1].append(index)
        return [
            (
                nn.utils.rnn.pad_sequence(
                    [torch.tensor(english[index][::-1]) for index in group], batch_first=True, padding_value=PAD
                ).flip(1),
                torch.tensor([german[index] for index in group]),
            )
            for group in groups
        ]

    return batches


@dataclass
class Comparison:
    """Counts sentences, and those for which the hypotheses are the same."""

    sentences: int = 0
    same: int = 0

    def add(self, ours: list[Hypothesis], theirs: list[Hypothesis]) -> None:
        """Asserts that scores, token scores and attention are the same to 1e-4, or tied where hypotheses differ."""
        self.sentences += 1
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            assert one.score == pytest.approx(other.score, abs=1e-4), (one.tokens, other.tokens)
        if any(not torch.equal(one.tokens, other.tokens) for one, other in zip(ours, theirs, strict=True)):
            return
        self.same += 1
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one.token_scores, other.token_scores, rtol=0, atol=1e-4)
            torch.testing.assert_close(one.attention, other.attention, rtol=0, atol=1e-4)


@pytest.fixture
def compare(fairseq_search, pairs, batches):
    def compare(names: list[str], count: int, *, forced: bool = False, **settings: Any) -> None:
        options = SearchOptions(**{"token_scores": True, "attention": True, **settings})
        comparison = Comparison()
        models = [pairs[name] for name in names]
        for source, prefix in batches(count, equal_lengths=options.max_length_a > 0):
            first = prefix if forced else None
            theirs = fairseq_search(
                [model.theirs for model in models], models[0].target_dictionary, source, options, first
            )
            with torch.inference_mode():
                memories = [model.ours.encode(source) for model in models]
            decoder, memory, search_options = models[0].ours, memories[0], options
            if len(models) > 1:
                decoder = EnsembleDecoder([model.ours for model in models], temperature=options.temperature)
                memory, search_options = memories, dataclasses.replace(options, temperature=1.0)
            ours = beam_search(decoder, memory, search_options, source_lengths=source.ne(PAD).sum(1), prefix=first)
            for one, other in zip(ours, theirs, strict=True):
                comparison.add(one, other)
        assert comparison.sentences == count
        assert comparison.same >= 0.99 * count

    return compare


ONE, TWO = NAMES


# the rules are compared over tables (test_fairseq_tables); here the models' steps, reordered states and attention
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        (ONE, {"beam": 1}),
        (ONE, {"forced": True, "nbest": 3}),
        (TWO, {"beam": 5, "nbest": 5, "length_penalty": 0.6, "max_length_a": 1.2, "max_length_b": 10}),
    ],
    ids=str,
)
def test_a_few_sentences(compare, name, settings):
    compare([name], FEW, **settings)


def test_a_few_sentences_of_an_ensemble(compare):
    compare([ONE, TWO], FEW, nbest=4, temperature=1.4)


@pytest.mark.slow
@pytest.mark.parametrize("names", [[ONE], [TWO], [ONE, TWO]], ids="+".join)
def test_many_sentences(compare, names):
    compare(names, MANY)
