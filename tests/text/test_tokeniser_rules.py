"""The tokeniser and the punctuation rules are made faster than sacremoses', and give what it gives."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from sacremoses import MosesPunctNormalizer, MosesTokenizer

from rskip.text.tokeniser import MosesTokeniser, PunctuationNormaliser

SENTENCES = [
    "The U.S.A. won 3.5 p.m. vs. them... etc. and so on.",
    "No. 5 is at No. five; e.g. here,there 1,000 , A,B,C.",
    "„Ja“ –  er sagt’s…  ''so'' `da` (hier) 5 % [x] {y}",
    "«\u00a0Oui\u00a0» : c'est l'été\u00a0! nº\u00a05, 20\u00a0000 10\u00a0ºC",
    "  two  spaces\tand\r a return. ",
    "Ελλάδα α.β. 中文。 Ünïcode A.b.",
    "...",
    "",
]


def expected(language: str, sentence: str) -> tuple[str, str]:
    normalised = MosesPunctNormalizer(language, norm_quote_commas=False).normalize(sentence)
    words = MosesTokenizer(language).tokenize(normalised, aggressive_dash_splits=True, return_str=True, escape=True)
    return normalised, words


@pytest.mark.parametrize("language", ["en", "de", "fr", "vi", "zh"])
def test_awkward_sentences(language: str) -> None:
    normalise, tokeniser = PunctuationNormaliser(language), MosesTokeniser(language)
    for sentence in SENTENCES:
        assert (normalise(sentence), tokeniser.tokenise(normalise(sentence))) == expected(language, sentence)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "language"), [("en-de.en", "en"), ("en-de.de", "de"), ("en-fr.fr", "fr"), ("en-fr.en", "en")]
)
def test_every_sentence_of_newstest2014(shared: Path, name: str, language: str) -> None:
    normalise, tokeniser = PunctuationNormaliser(language), MosesTokeniser(language)
    rules = MosesPunctNormalizer(language, norm_quote_commas=False)
    theirs = MosesTokenizer(language)
    with gzip.open(shared / f"data/wmt14/newstest2014.{name}.gz", "rt", encoding="utf-8", newline="\n") as file:
        for line in file:
            normalised = rules.normalize(line.rstrip("\n"))
            assert normalise(line.rstrip("\n")) == normalised
            words = theirs.tokenize(normalised, aggressive_dash_splits=True, return_str=True, escape=True)
            assert tokeniser.tokenise(normalised) == words
