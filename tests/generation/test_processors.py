from __future__ import annotations

import math

import pytest
import torch

from rskip.generation import SearchOptions, SpecialTokens
from rskip.generation.processors import Step, build_processors
from rskip.text import Dictionary


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
