"""The filter of pairs in other languages."""

import gzip
import pickle
import sys
from pathlib import Path

import pytest

from rskip.corpora.cleaning import PairCleaner
from rskip.corpora.cleaning import languages as filter_module
from rskip.corpora.cleaning.languages import check_languages, mismatch
from rskip.corpora.corpus import CleaningOptions, Pair

ENGLISH = "The committee has not yet decided whether the report will be published this year ."
GERMAN = "Der Ausschuss hat noch nicht entschieden , ob der Bericht dieses Jahr veröffentlicht wird ."
FRENCH = "La commission n &apos;a pas encore décidé si le rapport sera publié cette année @-@ ci ."


def test_reasons() -> None:
    pytest.importorskip("py3langid")
    cleaner = PairCleaner(CleaningOptions(languages=True), languages=("en", "de"))
    reasons: dict[Pair, str | None] = {
        (ENGLISH, GERMAN): None,
        (GERMAN, ENGLISH): "wrong language",
        (ENGLISH, ENGLISH): "wrong language",
        (FRENCH, GERMAN): "wrong language",
        (ENGLISH, FRENCH): "wrong language",
        ("merci bien .", "de rien ."): None,  # too short to tell
        ("", ""): None,
    }
    assert {words: cleaner.reason(words) for words in reasons} == reasons
    assert pickle.loads(pickle.dumps(cleaner)).reason((GERMAN, GERMAN)) == "wrong language"


def test_an_unknown_language() -> None:
    pytest.importorskip("py3langid")
    with pytest.raises(ValueError, match="py3langid does not know the language 'qq': leave out the language filter"):
        check_languages(("en", "qq"))


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "py3langid.langid", None)
    filter_module._identifier.cache_clear()
    with pytest.raises(ValueError, match="^the language filter needs py3langid: install the extra langid with"):
        PairCleaner(CleaningOptions(languages=True), languages=("en", "de"))
    PairCleaner(CleaningOptions(), languages=("en", "de"))  # not needed unless asked for


def test_true_and_foreign_sentences(shared: Path) -> None:
    pytest.importorskip("py3langid")
    texts = [
        gzip.decompress((shared / f"data/wmt14/newstest2013.{language}.gz").read_bytes()).decode().splitlines()[:500]
        for language in ("en", "fr")
    ]
    english, french = texts
    assert not any(mismatch(pair, ("en", "fr")) for pair in zip(english, french, strict=True))
    for foreign in (zip(french, english, strict=True), zip(english, english, strict=True)):
        assert sum(mismatch(pair, ("en", "fr")) for pair in foreign) > 450
