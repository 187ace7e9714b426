"""The steps before the subword units are inferred from the dictionary."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product

import pytest
import sentencepiece

from rskip.text import Dictionary, TextConfig
from rskip.text.finding import AssumedText, assumed_config
from rskip.text.pipeline import LanguageText
from rskip.text.subwords import BytePairEncoding, SentencePiece

ENGLISH = [
    'He said: "Two well-known men, one woman, and a dog ran!"',
    "The man’s dog – a sled-dog, of course – sleeps, doesn't it?",
    "“Run,” she said; nobody ran, nobody slept, nobody answered.",
    "A well-known dog, an old man, and the woman's cat & mouse.",
] * 3
MOSES = TextConfig(source_language="en", target_language="de")
NONE = replace(MOSES, tokeniser="none", dash_splits=False)
PIECES = replace(NONE, normalise_punctuation=False, subwords="sentencepiece")
SWITCHES = ("lowercase", "normalise_punctuation", "dash_splits", "escape")


def variants(config: TextConfig, *switches: str) -> list[TextConfig]:
    values = product((True, False), repeat=len(switches))
    return [replace(config, **dict(zip(switches, each, strict=True))) for each in values]


def dictionary_of(tokens: list[str]) -> Dictionary:
    """As fairseq-preprocess makes it: frequent tokens first."""
    return Dictionary(token for token, _ in Counter(tokens).most_common())


def found_after(config: TextConfig, kind: type[BytePairEncoding] | type[SentencePiece]) -> TextConfig:
    """The steps inferred from the dictionary of text that was prepared by these."""
    words = [LanguageText(config, "en").words(sentence) for sentence in ENGLISH]
    units = kind.learn(words, size=80)
    dictionary = dictionary_of([token for line in words for token in units.segment(line).split()])
    return assumed_config(units, dictionary, source="en", target="de")


@pytest.mark.parametrize("config", variants(MOSES, *SWITCHES), ids=str)
def test_mosess_words_before_byte_pairs(config: TextConfig) -> None:
    assert found_after(config, BytePairEncoding) == config


@pytest.mark.parametrize("config", variants(NONE, "lowercase", "normalise_punctuation"), ids=str)
def test_untokenised_text_before_byte_pairs(config: TextConfig) -> None:
    assert replace(found_after(config, BytePairEncoding), escape=config.escape) == config


@pytest.mark.skipif(
    tuple(map(int, sentencepiece.__version__.split(".")[:3])) < (0, 2, 3),
    reason="learns other units from so little text",
)
@pytest.mark.parametrize(
    "config",
    [*variants(PIECES, "lowercase"), *variants(replace(PIECES, tokeniser="moses"), "lowercase", "dash_splits")],
    ids=str,
)
def test_text_before_sentencepiece(config: TextConfig) -> None:
    assert replace(found_after(config, SentencePiece), escape=config.escape) == config


def test_bytes_and_padding_are_not_capitals() -> None:
    dictionary = Dictionary(["a", "man", "<0xE2>", "<Unk>", "madeupword0000"])
    found = assumed_config(BytePairEncoding("#version: 0.2\nm a\n"), dictionary, source="en", target="de")
    assert found.lowercase
    assert not assumed_config(
        BytePairEncoding("#version: 0.2\nm a\n"), Dictionary(["犬"]), source="ja", target="de"
    ).lowercase


def test_the_warning_says_the_steps() -> None:
    assert str(AssumedText(replace(MOSES, lowercase=True))) == (
        "no pipeline.json: text is treated as the dictionary suggests: Moses' tokeniser, dash splits, escapes, "
        "lowercased, punctuation normalised (text_settings change it)"
    )
    assert AssumedText(PIECES).assumption.endswith(": no tokeniser, case kept, punctuation kept")
