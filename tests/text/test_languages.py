"""The tokens that tell a multilingual model its languages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rskip.settings.check import to_plain
from rskip.settings.errors import SettingError
from rskip.text import Dictionary, Tokenizer
from rskip.text.finding import TokenizerSettings, find_tokenizer
from rskip.text.languages import LanguageTokens, PairTokens
from rskip.text.pipeline import TextConfig, TextPipeline, TokenText
from rskip.text.subwords import BytePairEncoding

WORDS = Dictionary(["a", "b", "__de__", "__en__", "__fr__"])
A, B, DE, EN, FR = range(4, 9)
END = Dictionary.eos_index
CODES = ("de", "en", "fr")


def tokenizer(**settings: object) -> Tokenizer:
    return Tokenizer(TokenText("en", "de"), WORDS, WORDS, LanguageTokens(codes=CODES, **settings))


@pytest.mark.parametrize(
    ("settings", "source", "pair"),
    [
        ({}, [A, B, END], PairTokens()),
        (
            {"encoder": "source", "decoder": "first"},
            [EN, A, B, END],
            PairTokens(before=(EN,), first=(DE,), hidden=frozenset({DE})),
        ),
        ({"encoder": "target"}, [DE, A, B, END], PairTokens(before=(DE,))),
        (
            {"encoder": "source", "encoder_place": "end", "decoder": "start"},
            [A, B, EN],
            PairTokens(after=(EN,), start=DE, hidden=frozenset({DE})),
        ),
        (
            {"encoder": "source", "encoder_place": "after end", "decoder": "start and end"},
            [A, B, END, EN],
            PairTokens(after=(END, EN), start=DE, end=DE, hidden=frozenset({DE})),
        ),
    ],
)
def test_where_the_tokens_are(settings: dict[str, str], source: list[int], pair: PairTokens) -> None:
    found = tokenizer(**settings)
    assert (found.encode("a b"), found.pair) == (source, pair)
    assert found.encode_prefix("a b") == [A, B]
    assert found.decode([DE, A, FR, DE, END]) == ("a __fr__" if "decoder" in settings else "__de__ a __fr__ __de__")


def test_tokens_of_other_languages_are_left_out_if_they_are_not_shown() -> None:
    assert tokenizer(decoder="first", shows_others=False).decode([DE, A, FR, DE, END]) == "a"


@pytest.mark.parametrize(
    ("ids", "inner"), [([A, B, END, DE], [A, B, END]), ([A, DE], [A, DE]), ([DE], [DE]), ([END, DE], [END])]
)
def test_a_translation_that_ends_in_two_tokens(ids: list[int], inner: list[int]) -> None:
    assert ids[PairTokens(start=DE, end=DE).inner(ids)] == inner


def test_other_languages_of_one_tokenizer() -> None:
    found = tokenizer(encoder="source", decoder="first")
    other = found.between(None, "fr")
    assert (other.source_language, other.target_language, other.pair.first) == ("en", "fr", (FR,))
    assert found.between("en", "de") is found
    with pytest.raises(SettingError, match=r"^target_language is 'fr', but the model translates only en to de$"):
        Tokenizer(TokenText("en", "de"), WORDS, WORDS).between(None, "fr")


def test_two_letters_stand_for_the_only_code_of_a_language() -> None:
    codes = ("deu_Latn", "eng_Latn", "zho_Hans", "zho_Hant", *(f"x{number:02}_Latn" for number in range(20)))
    words = Dictionary(map("__{}__".format, codes))
    tokens = LanguageTokens(codes=codes, encoder="source")
    found = Tokenizer(TokenText("deu_Latn", "zho_Hans"), words, words, tokens).between("en", "de")
    assert (found.source_language, found.target_language) == ("eng_Latn", "deu_Latn")
    assert found.between("en", "de") is found
    with pytest.raises(SettingError, match="is .zh., which the model doesn.t have: .* one of zho_Hans, zho_Hant$"):
        found.between("zh", None)
    with pytest.raises(SettingError, match=r"deu_Latn, .*, x07_Latn and 14 more \(`rskip inspect MODEL` lists all\)$"):
        found.between("fr", None)


@pytest.mark.parametrize(
    ("languages", "message"),
    [
        ((None, "de"), "source_language must be given: expected one of de, en, fr"),
        (("en", None), "target_language must be given: expected one of de, en, fr"),
        (("en", "fra"), r"target_language is 'fra' \(did you mean 'fr'\?\), which the model doesn't have: expected"),
        (("de", "de"), "target_language is 'de', the source language: expected another language to translate to"),
    ],
)
def test_languages_that_cannot_be(languages: tuple[str | None, str | None], message: str, tmp_path: Path) -> None:
    WORDS.save(tmp_path / "dict.txt")
    for codes in (CODES, ()):  # known, or those of the dictionary
        with pytest.raises(SettingError, match=f"^{message}") as caught:
            settings = TokenizerSettings(text="tokens", languages=languages)
            tokens = LanguageTokens(codes=codes)
            find_tokenizer(tmp_path / "model.pt", settings, own_languages=(None, None), data=(), tokens=tokens)
        assert "\n" not in str(caught.value)


def test_tokens_behind_those_of_the_file(tmp_path: Path) -> None:
    Dictionary(["a", "__en__"]).save(tmp_path / "some.txt")
    tokens = LanguageTokens(codes=("de", "en"), added=("__de__", "__en__", "<mask>"), decoder="first")
    settings = TokenizerSettings(dictionaries=tmp_path / "some.txt", text="tokens", languages=("en", "de"))
    model = tmp_path / "m" / "model.pt"
    found = find_tokenizer(model, settings, own_languages=(None, None), data=(), tokens=tokens)
    assert found.target.tokens[4:] == ["a", "__en__", "__de__", "<mask>"] and found.source is found.target
    assert found.pair.first == (6,)


def test_a_language_without_token() -> None:
    with pytest.raises(SettingError, match="target_language is 'de', but the target dictionary has no token de_"):
        tokenizer(form="{}_", decoder="first")


def test_a_folder_with_two_dictionaries_keeps_its_languages(tmp_path: Path) -> None:
    other = Dictionary(["c", "__de__", "__en__", "__fr__"])
    tokens = LanguageTokens(codes=CODES, encoder="source", decoder="first")
    config = TextConfig(source_language="en", target_language="de", subwords="bpe", tokeniser="none")
    text = TextPipeline(config, BytePairEncoding("#version: 0.2\na b\n"))
    saved = Tokenizer(text, WORDS, other, tokens)
    saved.save(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"languages": to_plain(tokens)}))
    loaded = Tokenizer.load(tmp_path)
    assert (loaded.languages, loaded.pair) == (tokens, saved.pair)
    assert loaded.pair.first == (other.index("__de__"),) and loaded.encode("a b")[0] == EN
