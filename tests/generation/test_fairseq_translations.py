"""With trained models and real sentences, our search finds what fairseq's `SequenceGenerator` does."""

from __future__ import annotations

import dataclasses
import gzip
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rskip.checkpoint import build_transformer, read_checkpoint, to_stock
from rskip.generation import SearchOptions, find_search
from rskip.generation.ensemble import EnsembleDecoder
from rskip.text import Dictionary, Tokenizer
from rskip.transformer import Transformer

fairseq_models = pytest.importorskip("fairseq.models", reason="needs fairseq: run `rskip setup-fairseq`")

PAD, END = 1, 2
NAMES = ["multi30k_en_de/1xskip_ln", "multi30k_en_de/2rskip_ln"]
COUNT = 8


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
def batch(root: Path, shared: Path) -> tuple[Tensor, Tensor]:
    """Sentences, longest first: source (B, S), padded on the left, and the first two tokens of their references."""
    tokenizer = Tokenizer.load(root / "checkpoints" / NAMES[0])
    english = [torch.tensor(tokenizer.encode(line)[::-1]) for line in lines(shared, "en")[:COUNT]]
    german = [tokenizer.encode_prefix(line)[:2] for line in lines(shared, "de")[:COUNT]]
    order = sorted(range(COUNT), key=lambda index: len(english[index]), reverse=True)
    reversed_source = nn.utils.rnn.pad_sequence([english[index] for index in order], True, PAD)
    return reversed_source.flip(1), torch.tensor([german[index] for index in order])


@pytest.fixture
def compare(fairseq_search, pairs, batch):
    """Scores, token scores and attention are the same to 1e-4; where hypotheses differ, they are tied."""

    def compare(names: list[str], *, forced: bool = False, **settings: Any) -> None:
        options = SearchOptions(**{"token_scores": True, "attention": True, **settings})
        models, (source, prefix), same = [pairs[name] for name in names], batch, 0
        first = prefix if forced else None
        expected = fairseq_search(
            [model.theirs for model in models], models[0].target_dictionary, source, options, first
        )
        with torch.inference_mode():
            memories = [model.ours.encode(source) for model in models]
        decoder, memory, search_options = models[0].ours, memories[0], options
        if len(models) > 1:
            decoder = EnsembleDecoder([model.ours for model in models], temperature=options.temperature)
            memory, search_options = memories, dataclasses.replace(options, temperature=1.0)
        lengths, search = source.ne(PAD).sum(1), find_search(source.device)
        found = search(decoder, memory, search_options, source_lengths=lengths, prefix=first)
        for ours, theirs in zip(found, expected, strict=True):
            for one, other in zip(ours, theirs, strict=True):
                assert one.score == pytest.approx(other.score, abs=1e-4), (one.tokens, other.tokens)
            if all(torch.equal(one.tokens, other.tokens) for one, other in zip(ours, theirs, strict=True)):
                same += 1
                for one, other in zip(ours, theirs, strict=True):
                    torch.testing.assert_close(one.token_scores, other.token_scores, rtol=0, atol=1e-4)
                    torch.testing.assert_close(one.attention, other.attention, rtol=0, atol=1e-4)
        assert same >= 0.99 * COUNT

    return compare


ONE, TWO = NAMES


# the rules are compared over tables (test_fairseq_tables); here the models' steps, reordered states and attention
@pytest.mark.parametrize(
    ("names", "settings"),
    [
        ([ONE], {"beam": 1}),
        ([ONE], {"forced": True, "nbest": 3}),
        ([TWO], {"beam": 5, "nbest": 5, "length_penalty": 0.6}),
        ([ONE, TWO], {"nbest": 4, "temperature": 1.4}),
    ],
    ids=str,
)
def test_real_sentences(compare, names, settings):
    compare(names, **settings)
