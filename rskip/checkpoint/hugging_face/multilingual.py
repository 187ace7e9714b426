"""The vocabulary and the languages of Hugging Face's multilingual models, whose rows have fairseq's order.

A vocabulary is vocab.json, or the model of tokenizer.json, or the units of sentencepiece.bpe.model. Further files
number or list the tokens that are added to it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import NamedTuple

from rskip.checkpoint.hugging_face import pieces
from rskip.checkpoint.hugging_face.folder import TOKENIZER_ADVICE, Folder
from rskip.checkpoint.hugging_face.tokens import (
    ADDED,
    ALL,
    FIRST,
    SPECIAL,
    TOKENIZER,
    added_tokens,
    dictionary_of,
    listed_tokens,
    numbered_tokens,
)
from rskip.settings.errors import SettingError
from rskip.text.dictionary import Dictionary
from rskip.text.languages import LanguageTokens
from rskip.text.pipeline import TextConfig, TextPipeline
from rskip.text.subwords import MergedPieces, WholePieces

PIECES = "sentencepiece.bpe.model"
_SPECIAL_PIECES = 3  # <unk>, <s> and </s> come first in the SentencePiece models


class Languages(NamedTuple):
    """How a family of models writes its languages.

    tokens: the form of their tokens, and where a model finds them.
    pattern: what their codes look like.
    usual: the codes of a model whose files don't list them, in the order of their rows.
    drops_spaces: the tokenizer drops spaces next to added tokens, even if tokenizer.json doesn't say it.
    """

    tokens: LanguageTokens
    pattern: str
    usual: Sequence[str] = ()
    drops_spaces: bool = False

    def code(self, token: str) -> str | None:
        """The language whose token this is; None: of no language."""
        form = re.escape(self.tokens.form).replace(re.escape("{}"), f"({self.pattern})")
        match = re.fullmatch(form, token)
        return None if match is None else match[1]


class Multilingual(NamedTuple):
    """What a multilingual model needs in addition to its weights. `text` is between some two of the languages."""

    text: TextPipeline
    dictionary: Dictionary
    tokens: LanguageTokens


def read_multilingual(
    folder: Folder, languages: Languages, *, size: int, vocabulary: Mapping[str, int] | None = None
) -> Multilingual:
    """The vocabulary, text and languages of a folder.

    :param size: the number of rows of the embedding.
    :param vocabulary: the numbers of the tokens, if a file of their own has them.
    :raises FileNotFoundError: a file is missing.
    :raises SettingError: the files are of another model, or don't say its languages.
    """
    content = folder.read_object(ALL) if folder.has(ALL) else None
    source = str(folder.path / ALL)
    numbered = numbered_tokens(folder, content or {})
    splits = pieces.splits_at_white_space(content or {})
    added = added_tokens(
        folder,
        content or {},
        [token for token in numbered if token not in FIRST and not languages.code(token)],
        fast=vocabulary is None,
        drops_spaces=languages.drops_spaces or splits,
    )
    if folder.has(PIECES) or content is None:
        units = _load_pieces(folder)
    else:
        special = numbered.keys() - {token.content for token in added if not token.special}
        units = pieces.read_units(content, special=special, source=source)
    if vocabulary is None:
        own = _piece_numbers(units)
        vocabulary = own if content is None else pieces.vocabulary(content, source=source)
    _check_units(units, vocabulary, folder)
    found = _language_numbers(folder, languages, numbered, vocabulary, size)
    units_of = {token.content: token.unit for token in added}
    rows = {**vocabulary, **{units_of.get(token, token): number for token, number in numbered.items()}, **found}
    dictionary = dictionary_of(rows, size, source=str(folder.path))
    tokens = replace(languages.tokens, codes=tuple(filter(None, map(languages.code, found))))
    config = TextConfig(
        source_language=tokens.codes[0],
        target_language=tokens.codes[1],
        normalise_punctuation=False,
        tokeniser="none" if splits and not folder.has(PIECES) else "raw",
        dash_splits=False,
        escape=False,
        subwords="sentencepiece-merges" if isinstance(units, MergedPieces) else "sentencepiece-whole",
        added_tokens=added,
    )
    return Multilingual(TextPipeline(config, units), dictionary, tokens)


def _load_pieces(folder: Folder) -> WholePieces:
    if not folder.has(PIECES):
        raise FileNotFoundError(f"no {ALL} or {PIECES} in {folder.path}: {TOKENIZER_ADVICE}")
    return WholePieces.load(folder.file(PIECES))


def _piece_numbers(units: WholePieces) -> dict[str, int]:
    """The numbers of a SentencePiece model's units behind the special tokens."""
    names = units.pieces()[_SPECIAL_PIECES:]
    return {**FIRST, **{name: number for number, name in enumerate(names, start=len(FIRST))}}


def _check_units(units: WholePieces, vocabulary: Mapping[str, int], folder: Folder) -> None:
    """Refuses a SentencePiece model most of whose units the vocabulary lacks, and one in another order."""
    names = units.units()
    if 2 * sum(name in vocabulary for name in names) <= len(names):
        problem = "has other units than the vocabulary"
        source = str(folder.path / PIECES)
        raise SettingError("", problem, advice="give the files of one model", source=source)


def _language_numbers(
    folder: Folder, languages: Languages, numbered: Mapping[str, int], vocabulary: Mapping[str, int], size: int
) -> dict[str, int]:
    """The tokens of the languages and their rows, in the order of the rows."""
    found = {token: number for token, number in numbered.items() if languages.code(token)}
    if not found:
        listed = [token for token in listed_tokens(folder) if languages.code(token)]
        usual = [languages.tokens.token(code) for code in languages.usual]
        is_part = {*listed} <= {*usual} and len(vocabulary) + len(usual) <= size
        free = count(len(vocabulary))
        places = {
            token: vocabulary[token] if token in vocabulary else next(free) for token in (usual if is_part else listed)
        }
        found = {token: places[token] for token in listed or usual if token in places}
    if len(found) < 2:
        problem = f"{len(found)} languages in {ALL}, {ADDED}, {TOKENIZER} and {SPECIAL}"
        advice = "get all files of the model"
        raise SettingError("", problem, expected="two or more", advice=advice, source=str(folder.path))
    return dict(sorted(found.items(), key=lambda each: each[1]))
