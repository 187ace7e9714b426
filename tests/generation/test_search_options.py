"""The options of a search."""

from __future__ import annotations

import dataclasses
import math

import pytest

from rskip.generation import SearchOptions, SpecialTokens
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
