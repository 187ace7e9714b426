"""How training text was made tokens, as far as a model's dictionary shows it."""

from __future__ import annotations

import re

from rskip.text.dictionary import Dictionary
from rskip.text.pipeline import CONFIG_FILE, TextConfig
from rskip.text.subwords import SentencePiece, Subwords
from rskip.text.words import TokeniserKind

_SPECIAL = re.compile(r"<.*>|madeupword\d{4}")  # bytes of SentencePiece, and padding, beside <unk> and others
_GLUED = re.compile(r".*[^\W\d_][,!?]")  # a letter and a mark, which Moses' tokeniser separates
_TYPOGRAPHIC = frozenset("\u201c\u201d\u201e\u2018\u2019\u201a\u00ab\u00bb\u2013\u2014\u2026")
_MARK = "\u2581"  # SentencePiece's space


class AssumedText(UserWarning):
    """No pipeline.json says how the training text was made tokens, so it was assumed.

    :param config: the assumed steps.

    assumption: the same in words.
    """

    def __init__(self, config: TextConfig) -> None:
        self.config = config
        self.assumption = f"no {CONFIG_FILE}: text is treated as the dictionary suggests: {described(config)}"
        super().__init__(f"{self.assumption} (text_settings change it)")


def assumed_config(units: Subwords, dictionary: Dictionary, *, source: str, target: str) -> TextConfig:
    """The steps before the units, as the source dictionary shows them.

    Text is lowercased if no token has a capital letter. Words are Moses' if punctuation is separate, with dash splits
    if there is `@-@` (of SentencePiece: more `@` than `-`), and with escapes if there are no quotes or apostrophes.
    Punctuation is normalised before byte-pair encoding if there are no typographic quotes or dashes.

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
    """Whether there are letters that have a case, and none of them is a capital."""
    return any(token != token.upper() for token in tokens) and all(token == token.lower() for token in tokens)


def _tokeniser_of_words(tokens: list[str]) -> TokeniserKind:
    """By how many words have a punctuation mark at their end."""
    glued = sum(_GLUED.fullmatch(token) is not None for token in tokens)
    return "none" if glued > len(tokens) / 100 else "moses"


def _tokeniser_of_pieces(dictionary: Dictionary) -> TokeniserKind:
    """By whether a comma or a full stop is more frequent after a space."""
    return "moses" if any(_comes_first(dictionary, f"{_MARK}{mark}", mark) for mark in ",.") else "none"


def _comes_first(dictionary: Dictionary, token: str, other: str) -> bool:
    """Whether `token` is there and before `other`: dictionaries begin with frequent tokens."""
    return token in dictionary and (other not in dictionary or dictionary.index(token) < dictionary.index(other))


def described(config: TextConfig) -> str:
    """The steps before the units, in words."""
    moses = config.tokeniser == "moses"
    return ", ".join(
        (
            "Moses' tokeniser" if moses else "no tokeniser",
            *(("dash splits" if config.dash_splits else "no dash splits",) if moses else ()),
            *(("escapes" if config.escape else "no escapes",) if moses else ()),
            "lowercased" if config.lowercase else "case kept",
            "punctuation normalised" if config.normalise_punctuation else "punctuation kept",
        )
    )
