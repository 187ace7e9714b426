"""The comparison of printed sentences with those of a split."""

from __future__ import annotations

import pytest

from rskip.translation.systems import says_the_same


@pytest.mark.parametrize(
    ("printed", "sentence"),
    [
        ("a man , in a blue shirt .", "A man, in a blue shirt."),
        ("H\u00f4m nay tr\u1eddi \u0111\u1eb9p", "Ho\u0302m nay tro\u031b\u0300i \u0111e\u0323p"),  # Vietnamese in NFD
        ("\u0e17\u0e4d\u0e32\u0e07\u0e32\u0e19", "\u0e17\u0e33\u0e07\u0e32\u0e19"),  # Thai
        ("2026\u5e74\u306b", "\uff12\uff10\uff12\uff16\u5e74\u306b"),  # Japanese, with wide digits
        ("\u6211\u7231 <unk>", "\u6211\u7231\u4f60\u4eec"),
        ("<unk>", "Nairobi"),
        ("", ""),
    ],
)
def test_sentences_that_say_the_same(printed, sentence):
    assert says_the_same(printed, sentence)


@pytest.mark.parametrize(
    ("printed", "sentence"),
    [
        ("a man , in a blue shirt .", "Two dogs are playing in the snow."),
        ("a man <unk> in a blue shirt .", "Two dogs are playing in the snow."),
        ("\u6211\u7231\u4f60", "\u5929\u6c14\u5f88\u597d"),
        ("", "Two dogs."),
    ],
)
def test_sentences_that_say_something_else(printed, sentence):
    assert not says_the_same(printed, sentence)
