"""Sentences to words and back: Moses' rules through sacremoses, or words as they stand."""

from __future__ import annotations

from typing import Protocol

from sacremoses import MosesDetokenizer, MosesPunctNormalizer, MosesTokenizer

TOKENISERS = ("moses", "none")


class Tokeniser(Protocol):
    """Words of a sentence, joined by single spaces, and the way back."""

    def tokenise(self, sentence: str) -> str: ...

    def detokenise(self, words: str) -> str: ...


class MosesTokeniser:
    """Moses' tokeniser with its two settings as `fairseq-generate --tokenizer moses` has them.

    :param language: two-letter code; it picks the abbreviations and the rules for apostrophes.
    :param dash_splits: `palm-tree` becomes `palm @-@ tree`.
    :param escape: `&`, quotes, brackets and `|` become XML entities.
    """

    def __init__(self, language: str, *, dash_splits: bool = True, escape: bool = True) -> None:
        self._tokeniser = MosesTokenizer(language)
        self._detokeniser = MosesDetokenizer(language)
        self._dash_splits = dash_splits
        self._escape = escape

    def tokenise(self, sentence: str) -> str:
        return self._tokeniser.tokenize(
            sentence, aggressive_dash_splits=self._dash_splits, return_str=True, escape=self._escape
        )

    def detokenise(self, words: str) -> str:
        return self._detokeniser.detokenize(words.split(), return_str=True, unescape=self._escape)


class WhitespaceTokeniser:
    """Words as they stand: only runs of white space become one space. What SentencePiece expects."""

    def tokenise(self, sentence: str) -> str:
        return " ".join(sentence.split())

    def detokenise(self, words: str) -> str:
        return " ".join(words.split())


class PunctuationNormaliser:
    """Moses' punctuation rules: typographic quotes, dashes and spaces become the plain ones.

    Commas and full stops stay on their side of a closing quote. Moses' script moves them to the side that
    each language's printers prefer, and so away from the raw references that are scored against.
    """

    def __init__(self, language: str) -> None:
        self._normaliser = MosesPunctNormalizer(language, norm_quote_commas=False)

    def __call__(self, sentence: str) -> str:
        return self._normaliser.normalize(sentence)


def build_tokeniser(name: str, language: str, *, dash_splits: bool, escape: bool) -> Tokeniser:
    """The tokeniser called `name`, one of TOKENISERS.

    :raises ValueError: unknown name.
    """
    if name == "moses":
        return MosesTokeniser(language, dash_splits=dash_splits, escape=escape)
    if name == "none":
        return WhitespaceTokeniser()
    raise ValueError(f"unknown tokeniser {name!r}: expected one of {', '.join(TOKENISERS)}")
