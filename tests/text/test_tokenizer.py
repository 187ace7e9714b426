"""Raw sentences to token ids and back."""

from pathlib import Path

import pytest

from rskip.text import Dictionary, TextConfig, TextPipeline, Tokenizer, TokenText
from rskip.text.subwords import BytePairEncoding

UNITS = BytePairEncoding("#version: 0.2\nd o\ndo g</w>\nH u\n")
TEXT = TextPipeline(TextConfig(source_language="en", target_language="de"), UNITS)
SOURCE, TARGET = Dictionary(["dog", "."]), Dictionary(["Hu@@", "n@@", "d", "."])


@pytest.fixture
def tokenizer() -> Tokenizer:
    return Tokenizer(TEXT, SOURCE, TARGET)


def test_a_source_has_its_tokens_ids_and_the_end(tokenizer: Tokenizer) -> None:
    assert tokenizer.tokens("dog dot.") == ["dog", "do@@", "t", "."]
    dog, dot, unknown = SOURCE.index("dog"), SOURCE.index("."), Dictionary.unk_index
    assert tokenizer.encode("dog dot.") == [dog, unknown, unknown, dot, Dictionary.eos_index]
    assert tokenizer.encode("dog.") == tokenizer.ids(tokenizer.tokens("dog."))
    assert tokenizer.encode("\0dog\0.") == tokenizer.encode(" dog .")


@pytest.mark.parametrize("blank", ["", " \t\u3000", "\0", "\u200b", "\ufeff", "\xad \u200d\u2060", "\x1f\x7f"])
def test_a_sentence_without_a_visible_character_has_no_tokens(blank: str, tokenizer: Tokenizer) -> None:
    assert tokenizer.tokens(blank) == tokenizer.encode_prefix(blank) == []
    assert tokenizer.tokens(f"{blank}dog") != []


def test_a_prefix_is_of_the_target_and_goes_on(tokenizer: Tokenizer) -> None:
    prefix = tokenizer.encode_prefix("Hund")
    assert prefix == [TARGET.index(token) for token in ("Hu@@", "n@@", "d")]
    assert tokenizer.decode([*prefix, Dictionary.eos_index]) == tokenizer.decode(prefix) == "Hund"


def test_what_looks_like_a_special_token_is_unknown() -> None:
    tokenizer = Tokenizer(TokenText("a", "b"), Dictionary(["w"]), Dictionary(["v"]))
    unknown, end = Dictionary.unk_index, Dictionary.eos_index
    assert tokenizer.encode("w </s> <pad> <s> <unk> w") == [4, unknown, unknown, unknown, unknown, 4, end]
    assert tokenizer.encode_prefix("v </s>") == [4, unknown]


@pytest.mark.parametrize(
    ("sentence", "message"),
    [("a\nb", "a line feed inside"), ("\ud800", "surrogates not allowed")],
)
def test_what_is_no_sentence_is_refused(sentence: str, message: str, tokenizer: Tokenizer) -> None:
    for encode in (tokenizer.encode, tokenizer.encode_prefix, tokenizer.tokens):
        with pytest.raises(ValueError, match=message):
            encode(sentence)


def test_saved_and_loaded_it_is_the_same(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path)
    loaded = Tokenizer.load(tmp_path)
    assert (loaded.source_language, loaded.target_language) == ("en", "de")
    assert (loaded.source.tokens, loaded.target.tokens) == (SOURCE.tokens, TARGET.tokens)
    assert loaded.encode("dog.") == tokenizer.encode("dog.")


def test_tokens_need_no_text(tmp_path: Path) -> None:
    Tokenizer(TokenText("a", "b"), SOURCE, TARGET).save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dict.a.txt", "dict.b.txt"]
    with pytest.raises(FileNotFoundError, match=r"no text pipeline in .*text"):
        Tokenizer.load(tmp_path)
