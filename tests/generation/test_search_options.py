from __future__ import annotations

import dataclasses
import math

import pytest

from rskip.generation import SearchOptions


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"beam": 0}, "beam=0: expected at least 1"),
        ({"beam": "5"}, "beam='5': expected a whole number"),
        ({"beam": 2.5}, "beam=2.5: expected a whole number"),
        ({"beam": True}, "beam=True: expected a whole number"),
        ({"nbest": 5}, "nbest=5: expected between 1 and the beam, 4"),
        ({"nbest": 0}, "nbest=0: expected between 1"),
        ({"length_penalty": math.nan}, "length_penalty=nan: expected a finite number"),
        ({"length_penalty": None}, "length_penalty=None: expected a number"),
        ({"length_penalty_kind": "wu"}, "length_penalty_kind='wu': expected fairseq or gnmt"),
        ({"min_length": -1}, "min_length=-1: expected at least 0"),
        (
            {"min_length": 21, "max_length_b": 20},
            "min_length=21: expected at most the greatest length, max_length_b=20",
        ),
        ({"max_length_a": -0.5}, "max_length_a=-0.5: expected at least 0"),
        ({"max_length_a": math.inf}, "max_length_a=inf: expected at least 0 and finite"),
        ({"max_length_b": -1}, "max_length_b=-1: expected at least 0"),
        ({"max_length_b": 0, "min_length": 0}, "max_length_b=0: expected at least 1 where max_length_a is 0"),
        ({"unknown_penalty": math.nan}, "unknown_penalty=nan: expected a number, or infinity"),
        ({"unknown_penalty": -math.inf}, "unknown_penalty=-inf: expected a number, or infinity"),
        ({"temperature": 0}, "temperature=0: expected more than 0"),
        ({"temperature": math.inf}, "temperature=inf: expected more than 0 and finite"),
        ({"no_repeat_ngram": -1}, "no_repeat_ngram=-1: expected at least 0"),
        ({"sampling": 1}, "sampling=1: expected True or False"),
        ({"sampling": True, "top_k": -1}, "top_k=-1: expected at least 0"),
        ({"sampling": True, "top_p": 0}, "top_p=0: expected more than 0 and at most 1"),
        ({"sampling": True, "top_p": 1.5}, "top_p=1.5: expected more than 0 and at most 1"),
        ({"top_k": 5}, "top_k=5: expected 0 without sampling"),
        ({"top_p": 0.9}, "top_p=0.9: expected 1 without sampling"),
    ],
    ids=str,
)
def test_a_setting_that_makes_no_sense_is_named(settings, message):
    with pytest.raises(ValueError) as caught:
        SearchOptions(**settings)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "settings",
    [
        {"max_length_a": 1, "max_length_b": 0},
        {"min_length": 300, "max_length_a": 2},
        {"unknown_penalty": math.inf},
        {"temperature": 1},
        {"length_penalty": -1},
        {"beam": 1, "nbest": 1, "sampling": True, "top_k": 10, "top_p": 0.9},
    ],
    ids=str,
)
def test_whole_numbers_stand_for_real_ones_and_extremes_are_taken(settings):
    options = SearchOptions(**settings)
    assert {name: getattr(options, name) for name in settings} == settings


def test_what_is_replaced_is_checked_too():
    with pytest.raises(ValueError, match="nbest=4: expected between 1 and the beam, 2"):
        dataclasses.replace(SearchOptions(nbest=4), beam=2)
