"""Infers from a model's dictionary how its training text was tokenised."""

from __future__ import annotations

import re

from rskip.text.dictionary import Dictionary
from rskip.text.pipeline import CONFIG_FILE, TextConfig
from rskip.text.subwords import SentencePiece, Subwords
from rskip.text.words import TokeniserKind

_SPECIAL = re.compile(r"<.*>|madeupword\d{4}")  # <unk> and the like, SentencePiece's bytes, and padding
_GLUED = re.compile(r".*[^\W\d_][,!?]")  # ends in a letter and a mark, which Moses' tokeniser would separate
_TYPOGRAPHIC = frozenset("\u201c\u201d\u201e\u2018\u2019\u201a\u00ab\u00bb\u2013\u2014\u2026")
_MARK = "\u2581"  # SentencePiece's space


class AssumedText(UserWarning):
    """Warning: there is no pipeline.json, so the steps before the subword units were inferred from the dictionary.

    :param config: the assumed steps.

    assumption: the assumed steps in words.
    """

    def __init__(self, config: TextConfig) -> None:
        self.config = config
        self.assumption = f"no {CONFIG_FILE}: text is treated as the dictionary suggests: {described(config)}"
        super().__init__(f"{self.assumption} (text_settings change it)")


def assumed_config(units: Subwords, dictionary: Dictionary, *, source: str, target: str) -> TextConfig:
    """The steps before the subword units, inferred from the source dictionary.

    Text is lowercased if no token has a capital letter. Moses' tokeniser is assumed if punctuation is separate. It
    splits dashes if `@-@` is a token (with SentencePiece: if `@` is more frequent than `-`). It escapes if no token has
    a quote or an apostrophe. Punctuation is normalised before byte-pair encoding if no token has a typographic quote or
    dash.

    :param source, target: languages.
    """
    pieces = isinstance(units, SentencePiece)
    tokens = [token for token in dictionary.tokens if not _SPECIAL.fullmatch(token)]
    return TextConfig(
        source_language=source,
        target_language=target,
        normalise_punctuation=not pieces and not any(_TYPOGRAPHIC & set(token) for token in tokens),
        tokeniser=_tokeniser_of_pieces(dictionary) if pieces else _tokeniser_of_words(tokens),
        lowercase=_are_lowercase(tokens),
        dash_splits=_comes_first(dictionary, "@", "-") if pieces else "@-@" in tokens,
        escape=not any('"' in token or "'" in token for token in tokens),
        subwords="sentencepiece" if pieces else "bpe",
    )


def _are_lowercase(tokens: list[str]) -> bool:
    """Whether there are letters that have a case, and all of them are lowercase."""
    return any(token != token.upper() for token in tokens) and all(token == token.lower() for token in tokens)


def _tokeniser_of_words(tokens: list[str]) -> TokeniserKind:
    """Decides by the share of tokens that end in a letter and a punctuation mark."""
    glued = sum(_GLUED.fullmatch(token) is not None for token in tokens)
    return "none" if glued > len(tokens) / 100 else "moses"


def _tokeniser_of_pieces(dictionary: Dictionary) -> TokeniserKind:
    """Decides by whether a comma or a full stop is more frequent after a space than after a letter."""
    return "moses" if any(_comes_first(dictionary, f"{_MARK}{mark}", mark) for mark in ",.") else "none"


def _comes_first(dictionary: Dictionary, token: str, other: str) -> bool:
    """Whether the dictionary has `token`, and has it before `other`: frequent tokens come first."""
    return token in dictionary and (other not in dictionary or dictionary.index(token) < dictionary.index(other))


_NORMALISED = {
    True: "punctuation normalised",
    False: "punctuation kept",
    "scripts": "normalised by Moses' scripts",
}


def described(config: TextConfig) -> str:
    """The steps before the subword units, in words."""
    moses = config.tokeniser == "moses"
    return ", ".join(
        (
            "Moses' tokeniser" if moses else "no tokeniser",
            *(("dash splits" if config.dash_splits else "no dash splits",) if moses else ()),
            *(("escapes" if config.escape else "no escapes",) if moses else ()),
            "lowercased" if config.lowercase else "case kept",
            _NORMALISED[config.normalise_punctuation],
        )
    )
