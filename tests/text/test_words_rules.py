"""The tokeniser and the punctuation rules are faster than sacremoses' and give the same results."""

from __future__ import annotations

import gzip
import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
import sacremoses.tokenize
from sacremoses import MosesPunctNormalizer, MosesTokenizer

from rskip.text.words import MosesTokeniser, PunctuationNormaliser, _letters_compiled_as_ranges

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


def expressions() -> dict[str, re.Pattern[str]]:
    """Those of sacremoses' classes, compiled anew."""
    file = sacremoses.tokenize.__file__
    assert file is not None
    spec = spec_from_file_location("sacremoses_anew", file)
    assert spec is not None and spec.loader is not None
    spec.loader.exec_module(module := module_from_spec(spec))
    found = {}
    for kind in (module.MosesTokenizer, module.MosesDetokenizer):
        for name, value in vars(kind).items():
            expression = value[0] if isinstance(value, tuple) else value
            if isinstance(expression, re.Pattern):
                found[f"{kind.__name__}.{name}"] = expression
    return found


def test_expressions_compiled_as_ranges_match_what_they_matched() -> None:
    """All of sacremoses', on every letter at which one of its lists begins or ends, and its neighbours."""
    as_they_are = expressions()
    with _letters_compiled_as_ranges():
        as_ranges = expressions()
    lists = [getattr(MosesTokenizer, name) for name in ("IsAlnum", "IsAlpha", "IsN", "IsSc", "IsSo")]
    edges: set[int] = {0, 0x10FFFF}
    for letters in map(set, lists):
        codes = {*map(ord, letters)}
        edges |= {near for code in codes for near in (code - 1, code + 1) if near not in codes}
        edges |= {code for code in codes if not {code - 1, code + 1} <= codes}
    letters = [chr(code) for code in sorted(edges)]
    text = "".join(f"a{c}b,{c},{c}1'{c}'{c}-{c} '{c} {c}, {c}' \n" for c in letters)
    tokens = [*letters, *(f"'{c}" for c in letters), *(f"{c}'" for c in letters)]  # a detokeniser's are anchored
    for name, plain in as_they_are.items():
        ranges = as_ranges[name]
        assert [m.span() for m in ranges.finditer(text)] == [m.span() for m in plain.finditer(text)], name
        assert [bool(ranges.search(each)) for each in tokens] == [bool(plain.search(each)) for each in tokens], name
    shorter = [name for name, plain in as_they_are.items() if len(as_ranges[name].pattern) < len(plain.pattern)]
    assert len(shorter) > 10 and len(letters) > 1000
    assert re.compile("abc" * 100).pattern == "abc" * 100


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
