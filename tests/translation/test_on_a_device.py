"""Translation on another device than the CPU: the same texts, and one wait for the device per step of the search."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import pytest

from rskip.translation import Translator, Workers
from rskip.translation.search import ModelSearcher

SENTENCES = ["A dog runs through the grass.", "Two men.", "A woman is singing."]


@pytest.fixture(scope="module")
def translator(root: Path) -> Translator:
    return Translator.from_pretrained(root / "checkpoints/multi30k_en_de/2rskip_ln")


@pytest.mark.parametrize(
    "settings",
    [
        {"prefixes": ["Ein Hund", None, "Eine"], "beam": 5, "nbest": 5, "attention": True, "token_scores": True},
        {"no_repeat_ngram": 2, "length_penalty_kind": "gnmt", "min_length": 8, "max_length_a": 0.0, "max_length_b": 9},
    ],
    ids=["prefixes", "limits"],
)
def test_texts_are_those_of_the_cpu(translator, settings, emulated_cuda):
    expected = translator.translate(SENTENCES, **settings)
    there = Translator(deepcopy(translator.model), translator.tokenizer).to("cuda")
    steps: list[int] = []
    emulated_cuda.clear()
    found = there.translate(SENTENCES, searcher=ModelSearcher(there.model, steps.append), **settings)
    for one, other in zip(expected, found, strict=True):
        assert [each.text for each in other.hypotheses] == [each.text for each in one.hypotheses]
        for here, each in zip(one.hypotheses, other.hypotheses, strict=True):
            assert each.score == pytest.approx(here.score, abs=1e-5)
            assert each.token_scores == pytest.approx(here.token_scores, abs=1e-4)
            assert each.alignment == here.alignment
    waits = emulated_cuda.synchronisations
    of_steps = sum(count for place, count in waits.items() if place.endswith("synchronize"))
    assert of_steps == len(steps)
    assert waits.total() - of_steps <= 2, "lengths and prefixes, once a batch"


def test_samples_on_a_device_come_from_the_seed(translator, emulated_cuda):
    """The draws are PyTorch's there, other than those of the compiled search."""
    there = Translator(deepcopy(translator.model), translator.tokenizer).to("cuda")
    settings = {"sampling": True, "top_k": 5, "top_p": 0.9, "temperature": 1.3, "beam": 3, "unknown_penalty": 2.0}
    first, again, other = (
        [each.text for each in there.translate(SENTENCES, seed=seed, **settings)] for seed in (1, 1, 2)
    )
    assert first == again != other


def test_what_is_for_cpus_is_refused(translator, root, emulated_cuda):
    there = Translator.from_pretrained(root / "checkpoints/multi30k_en_de/2rskip_ln", device="cuda")
    with pytest.raises(ValueError, match="^int8 is for CPUs and the model is on cuda:0: use bfloat16 there$"):
        Translator.from_pretrained(there.file, precision="int8", device="cuda")
    refusal = "^the model is on cuda:0, but worker processes need a model on the CPU: use 1 worker$"
    with pytest.raises(ValueError, match=refusal), Workers(there.model, 2):
        pass
