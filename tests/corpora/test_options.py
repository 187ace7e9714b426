"""What may be chosen when a corpus is prepared, and what a corpus's defaults make of it."""

from __future__ import annotations

import argparse
from typing import Any

import pytest

from rskip.cli._options import given_options
from rskip.cli.prepare import add_arguments
from rskip.corpora import CORPORA, PrepareOptions
from rskip.corpora.options import command_line_flags
from rskip.settings.errors import SettingError

CHOICES = (
    PrepareOptions(),
    PrepareOptions(clean=False),
    PrepareOptions(max_words=0, duplicates=False, entities="unescape"),
    PrepareOptions(subwords="sentencepiece", size=7, languages=True, max_ratio=2.5, learn_sample=9),
    PrepareOptions(tokeniser="none", lowercase=True),
    PrepareOptions(bpe_dropout=0.1, shards=3, max_ratio=9.0, clean=False, leaks=True),
)


def test_what_can_not_be() -> None:
    wrong: tuple[tuple[str, dict[str, Any], str], ...] = (
        ("size", {"size": 0}, "size is 0: expected a whole number, 1 or more and at most 100,000,000, or null"),
        ("subwords", {"subwords": "sentence"}, "did you mean sentencepiece?"),
        ("seed", {"seed": "1"}, "'1'"),
        ("duplicates", {"duplicates": "yes"}, "true or false"),
        ("entities", {"entities": "drop"}, "keep or unescape"),
        ("max_words", {"max_words": -1}, "0 or more"),
        ("max_ratio", {"max_ratio": 0.5}, "1 or more, or 0 for any"),
        ("bpe_dropout", {"bpe_dropout": 1}, "a probability, 0 or more and below 1"),
    )
    for name, options, message in wrong:
        with pytest.raises(SettingError) as caught:
            PrepareOptions(**options)
        assert caught.value.name == name and message in str(caught.value)


def test_pairs_and_seed_are_for_generated_corpora() -> None:
    for options in (PrepareOptions(pairs=5), PrepareOptions(seed=0)):
        with pytest.raises(SettingError, match="is for generated corpora.*, not for wmt14-en-de"):
            options.resolve(CORPORA["wmt14-en-de"])
        assert options.resolve(CORPORA["numbers-en-de"]).size == 500


def test_dropout_is_for_bpe() -> None:
    with pytest.raises(SettingError, match="is for subwords bpe, not for sentencepiece"):
        PrepareOptions(bpe_dropout=0.1, subwords="sentencepiece").resolve(CORPORA["wmt14-en-de"])
    assert PrepareOptions(bpe_dropout=0.1).resolve(CORPORA["wmt14-en-de"]).subwords == "bpe"


def test_what_is_resolved_resolves_to_itself() -> None:
    for corpus in CORPORA.values():
        for options in CHOICES:
            resolved = options.resolve(corpus)
            assert PrepareOptions(**resolved.to_plain()).resolve(corpus) == resolved  # type: ignore[arg-type]


def test_plain_form() -> None:
    """As corpus.json and records have had it since the first of them."""
    cleaning = {"remove_non_printing": True, "empty": True, "max_words": 175, "max_ratio": 1.5}
    cleaning |= {"duplicates": True, "leaks": True}
    french = CORPORA["wmt14-en-fr"]
    plain = PrepareOptions().resolve(french).to_plain()
    assert list(plain.items()) == [("subwords", "bpe"), ("size", 40_000), *cleaning.items()]
    plain = PrepareOptions(clean=False, max_ratio=9.0, shards=2).resolve(french).to_plain()
    assert repr(list(plain.values())) == "['bpe', 40000, False, False, 0, 9, False, False, 2]"
    plain = PrepareOptions(seed=0, learn_sample=3).resolve(CORPORA["numbers-en-de"]).to_plain()
    assert plain == {"subwords": "bpe", "size": 500, "pairs": 30_000, "seed": 0, "learn_sample": 3}


def test_flags_give_the_options_that_they_were_printed_from() -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    corpus = CORPORA["wmt14-en-de"]
    for options in CHOICES:
        resolved = options.resolve(corpus)
        arguments = [
            argument
            for flag, value in command_line_flags(resolved).items()
            for argument in ([f"--{flag}"] if value is True else [f"--{flag}", str(value)])
        ]
        given = given_options(parser.parse_args([corpus.name, *arguments]), PrepareOptions)
        assert PrepareOptions(**given).resolve(corpus) == resolved
