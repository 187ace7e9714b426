"""Sentences before tokenisation: characters that don't print, and entities."""

import itertools
import re
import unicodedata

import pytest

from rskip.corpora.cleaning.sentence import clean_sentence, remove_non_printing, unescape_entities
from rskip.corpora.corpus import CleaningOptions


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("A dog's “life”, c'est l'été – 30 °C.", "A dog's “life”, c'est l'été – 30 °C."),
        ("one\ttwo\rthree\x00four\x7ffive", "one two three four five"),
        ("don\x92t", "don t"),
        ("line\u2028paragraph\u2029next\x85end", "line paragraph next end"),
        ("zero\u200bwidth", "zero width"),
        ("private\ue000use \U000f0000 \U0010fffd", "private use    "),
        ("not\ufdd0a\uffffcharacter", "not a character"),
        ("\ufeffWett\xadbewerb\u2060s\u200e.", "Wettbewerbs."),
        ("\u202dleft\u202c \u2066isolated\u2069", "left isolated"),
        ("30\xa0% «\xa0oui\u202f»", "30\xa0% «\xa0oui\u202f»"),
        ("Auf\u200clage, Ti\u1ebfng\u200d Vi\u1ec7t", "Auflage, Ti\u1ebfng Vi\u1ec7t"),
        ("\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"),
        ("\u0915\u094d\u200d\u0937 \u0915\u200d ", "\u0915\u094d\u200d\u0937 \u0915 "),
        (
            "\U0001f468\u200d\U0001f469 \u2764\ufe0f\u200d\U0001f525",
            "\U0001f468\u200d\U0001f469 \u2764\ufe0f\u200d\U0001f525",
        ),
        ("\u0600\u0661 \u06dd", "\u0600\u0661 \u06dd"),  # signs of category Cf that are seen
        ("\ufffd", "\ufffd"),
    ],
)
def test_remove_non_printing(sentence: str, expected: str) -> None:
    assert remove_non_printing(sentence) == expected


def test_every_character_against_its_category() -> None:
    """As Moses' \\p{C} but for the differences that the docstring names."""
    seen = {}
    planes = range(0x20000), range(0xE0000, 0xE0200), (0xF0000, 0xFFFFD, 0x100000, 0x10FFFD)
    for code in itertools.chain(*planes):
        character = chr(code)
        cleaned = remove_non_printing(f"a{character}b")[1:-1]
        seen.setdefault((unicodedata.category(character), cleaned == character, cleaned), []).append(character)
    outcomes = {(category, "kept" if kept else repr(cleaned)) for category, kept, cleaned in seen}
    assert {outcome for outcome in outcomes if outcome[1] != "kept"} == {
        ("Cc", "' '"), ("Cf", "' '"), ("Cf", "''"), ("Cn", "' '"), ("Co", "' '"), ("Cs", "' '"),
        ("Zl", "' '"), ("Zp", "' '"),
    }  # fmt: skip
    assert not outcomes & {(category, "kept") for category in ("Cc", "Co", "Cs", "Zl", "Zp")}
    assert seen["Cf", False, " "] == ["\u200b"]
    # the format characters that stay show something, or steer scripts that need them
    kept = [unicodedata.name(character) for (category, same, _), characters in seen.items()
            for character in characters if category == "Cf" and same]  # fmt: skip
    pattern = "ARABIC|SYRIAC|KAITHI|MONGOLIAN|EGYPTIAN|SHORTHAND|MUSICAL"
    assert kept and all(re.match(pattern, name) for name in kept), kept


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("his life &apos;s &quot; work &quot; &amp; &#91; so on &#93; &#124; &lt; &gt;",
         "his life 's \" work \" & [ so on ] | < >"),
        ("&amp;quot; twice &amp;amp;quot; thrice", '" twice " thrice'),
        ("&amp;unknown; &#38;#x26;amp;lt;", "&unknown; <"),
        ("caf&eacute; &#233; &#xe9; &#8364; &#150;", "café é é € –"),
        ("AT&T, R&D, ?a=1&copy=2&lt", "AT&T, R&D, ?a=1&copy=2&lt"),
        ("&notit; &unknown; &; &#; &#x; & ;", "&notit; &unknown; &; &#; &#x; & ;"),
        ("one&#10;two&#13;&#x2028;three&NewLine;", "one two  three "),
        ("&nbsp;&shy;", "\xa0\xad"),
        ("nothing", "nothing"),
    ],
)  # fmt: skip
def test_unescape_entities(sentence: str, expected: str) -> None:
    assert unescape_entities(sentence) == expected


def test_the_options_choose_the_steps() -> None:
    sentence = "a&shy;b\tc\xadd"
    expected = {
        ("keep", False): sentence,
        ("keep", True): "a&shy;b cd",
        ("unescape", False): "a\xadb\tc\xadd",
        ("unescape", True): "ab cd",
    }
    for (entities, remove), cleaned in expected.items():
        assert clean_sentence(sentence, CleaningOptions(entities=entities, remove_non_printing=remove)) == cleaned


def test_text_that_was_escaped_very_often() -> None:
    assert unescape_entities("&" + 100_000 * "amp;" + "quot;") == '"'
    assert unescape_entities("&" + 100_000 * "amp;" + "quot") == "&quot"
