from __future__ import annotations

import dataclasses
import math

import pytest

from rskip.generation import SearchOptions
from rskip.settings.errors import SettingError


def test_a_setting_that_makes_no_sense_is_named():
    for settings, message in (
        ({"beam": 0}, "beam is 0: expected a whole number, 1 or more"),
        ({"beam": "5"}, "beam is '5': expected a whole number"),
        ({"beam": 2.5}, "beam is 2.5: expected a whole number"),
        ({"beam": True}, "beam is True: expected a whole number"),
        ({"nbest": 5}, "nbest is 5: expected at most beam (--beam), which is 4"),
        ({"nbest": 0}, "nbest is 0: expected a whole number, 1 or more"),
        ({"length_penalty": math.nan}, "length_penalty is nan: expected a number, -20 or more and at most 20"),
        ({"length_penalty": -1000}, "length_penalty is -1000.0: expected a number, -20 or more"),
        ({"beam": 10**20}, "beam is 100000000000000000000: expected a whole number, 1 or more and at most 1000"),
        ({"max_length_a": 1e9}, "max_length_a is 1000000000.0: expected a number, 0 or more and at most 100"),
        ({"temperature": 1e-320}, "temperature is 1e-320: expected a number, 1e-06 or more"),
        ({"length_penalty_kind": "wu"}, "length_penalty_kind is 'wu': expected fairseq or gnmt"),
        ({"min_length": -1}, "min_length is -1: expected a whole number, 0 or more"),
        ({"min_length": 21, "max_length_b": 20}, "min_length is 21: expected at most the max length"),
        ({"max_length_a": -0.5}, "max_length_a is -0.5: expected a number, 0 or more"),
        ({"max_length_a": math.inf}, "max_length_a is inf: expected a number, 0 or more"),
        ({"max_length_b": -1}, "max_length_b is -1: expected a whole number, 0 or more"),
        ({"max_length_b": 0, "min_length": 0}, "max_length_b is 0: expected 1 or more where max_length_a is 0"),
        ({"unknown_penalty": math.nan}, "unknown_penalty is nan: expected a number, -1e6 or more, or infinity"),
        ({"unknown_penalty": -math.inf}, "unknown_penalty is -inf: expected a number, -1e6 or more, or infinity"),
        ({"temperature": 0}, "temperature is 0.0: expected a number, 1e-06 or more"),
        ({"temperature": math.inf}, "temperature is inf: expected a number, 1e-06 or more"),
        ({"no_repeat_ngram": -1}, "no_repeat_ngram is -1: expected a whole number, 0 or more"),
        ({"sampling": 1}, "sampling is 1: expected true or false"),
        ({"sampling": True, "top_k": -1}, "top_k is -1: expected a whole number, 0 or more"),
        ({"sampling": True, "top_p": 0.0}, "top_p is 0.0: expected a number, more than 0 and at most 1"),
        ({"sampling": True, "top_p": 1.5}, "top_p is 1.5: expected a number, more than 0 and at most 1"),
        ({"top_k": 5}, "top_k is 5: expected 0 without sampling"),
        ({"top_p": 0.9}, "top_p is 0.9: expected 1 without sampling"),
        ({"seed": 2**63}, "seed is 9223372036854775808: expected a whole number from 0 to 2^63 - 1"),
    ):
        with pytest.raises(SettingError) as caught:
            SearchOptions(**settings)
        assert str(caught.value).startswith(message)
        assert caught.value.name in settings and "\n" not in str(caught.value)


def test_whole_numbers_stand_for_real_ones_and_extremes_are_taken():
    for settings in (
        {"max_length_a": 1, "max_length_b": 0},
        {"min_length": 300, "max_length_a": 2},
        {"unknown_penalty": math.inf},
        {"temperature": 1},
        {"length_penalty": -1},
        {"beam": 1, "nbest": 1, "sampling": True, "top_k": 10, "top_p": 0.9},
        {"seed": 2**63 - 1},
    ):
        options = SearchOptions(**settings)
        assert {name: getattr(options, name) for name in settings} == settings


def test_what_is_replaced_is_checked_too():
    with pytest.raises(SettingError, match=r"nbest is 4: expected at most beam \(--beam\), which is 2"):
        dataclasses.replace(SearchOptions(nbest=4), beam=2)
