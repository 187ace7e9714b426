"""The options of a search, and its rules on the next token."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from rskip.generation import SearchOptions, SpecialTokens
from rskip.generation.processors import Step, build_processors
from rskip.settings.errors import SettingError
from rskip.text import Dictionary


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("beam", {"beam": 0}), ("beam", {"beam": "5"}), ("nbest", {"nbest": 5}),
        ("length_penalty_kind", {"length_penalty_kind": "wu"}),
        ("min_length", {"min_length": 21, "max_length_b": 20}), ("max_length_b", {"max_length_b": 0, "min_length": 0}),
        ("unknown_penalty", {"unknown_penalty": math.nan}), ("unknown_penalty", {"unknown_penalty": -math.inf}),
        ("temperature", {"temperature": 0}), ("top_p", {"sampling": True, "top_p": 0.0}), ("top_k", {"top_k": 5}),
        ("top_p", {"top_p": 0.9}), ("seed", {"seed": 2**63}),
    ],
)  # fmt: skip
def test_a_setting_that_makes_no_sense_is_named(name, settings):
    with pytest.raises(SettingError) as caught:
        SearchOptions(**settings)
    assert caught.value.name == name and "\n" not in str(caught.value)


def test_extremes_are_taken_and_what_is_replaced_is_checked_too():
    SearchOptions(max_length_a=1, max_length_b=0, unknown_penalty=math.inf, length_penalty=-1, seed=2**63 - 1)
    SearchOptions(min_length=300, max_length_a=2)
    with pytest.raises(SettingError, match=r"nbest is 4: expected at most beam \(--beam\), which is 2"):
        dataclasses.replace(SearchOptions(nbest=4), beam=2)


def test_special_tokens_are_by_default_those_of_rskips_and_fairseqs_dictionaries():
    assert SpecialTokens() == SpecialTokens.of(Dictionary)
    fairseq_data = pytest.importorskip("fairseq.data", reason="needs fairseq: run `rskip setup-fairseq`")
    assert SpecialTokens() == SpecialTokens.of(fairseq_data.Dictionary())


def test_a_forced_token_follows_whatever_is_forbidden_and_keeps_its_logit():
    options = SearchOptions(min_length=3, no_repeat_ngram=1, unknown_penalty=math.inf)
    logits = torch.arange(12.0).view(2, 1, 6)
    expected = [[[-math.inf] * 3 + [3.0] + [-math.inf] * 2], [[6.0, -math.inf, -math.inf, -math.inf, 10.0, -math.inf]]]
    step = Step(length=1, tokens=torch.tensor([[[2, 3]], [[2, 5]]]), prefixes=[[3, 3], [4, 1]], limits=[9, 9])
    for process in build_processors(options, SpecialTokens()):
        process(logits, step)
    assert logits.tolist() == expected
