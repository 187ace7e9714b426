"""Finds the tokenizer of a multilingual model, whose dictionary may be one file for all languages."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from rskip.text.dictionary import Dictionary
from rskip.text.finding import Languages, TokenizerSettings, build_text, find_text, missing_dictionaries
from rskip.text.languages import LanguageTokens
from rskip.text.pipeline import TextConfig, TextPipeline
from rskip.text.subwords import SentencePiece, Subwords
from rskip.text.tokenizer import SHARED, Tokenizer

# names of the dictionary of all languages in models of rskip, mBART, NLLB and M2M-100
_SHARED = (SHARED, "dictionary.txt", "model_dict.*.txt")


def find_multilingual_tokenizer(
    model: Path, tokens: LanguageTokens, settings: TokenizerSettings, *, data: Sequence[Path]
) -> Tokenizer:
    """The tokenizer of a multilingual model, for translation between two of its languages.

    SentencePiece reads raw text, unless the settings or a pipeline.json have other steps.

    :param model: the model's file. The tokenizer's files may be next to it.
    :param data: folders of its training data.
    :raises FileNotFoundError: a file is missing. The error says what to give.
    :raises ValueError: a file is damaged, a language is missing or unknown, or a setting is not possible.
    """
    languages = settings.languages
    if tokens.codes:
        languages = tokens.check_pair(*languages)
    given = [] if settings.dictionaries is None else [Path(settings.dictionaries)]
    if missing := [path for path in given if not path.exists()]:
        raise FileNotFoundError(f"no folder {missing[0]}: give the folder with the dictionaries, or their file")
    folders = [*(path if path.is_dir() else path.parent for path in given), model.parent, *data]
    file = given[0] if given and given[0].is_file() else None
    paths = [_find_dictionary(language, folders) if file is None else file for language in languages]
    read = {path: Dictionary.load(path).extended(tokens.added) for path in paths}
    source, target = (read[path] for path in paths)
    tokens = tokens.resolved(target)
    known = Languages(*tokens.check_pair(*languages))
    found = find_text(settings.text, folders)
    pipeline = _text_between(found, known)
    return Tokenizer(build_text(pipeline, known, dictionary=source, settings=settings.steps), source, target, tokens)


def find_languages_of(
    tokens: LanguageTokens, model: Path, dictionaries: str | os.PathLike[str] | None
) -> LanguageTokens:
    """The language tokens with the languages of the model's dictionary, or unchanged if it is not found."""
    given = None if dictionaries is None else Path(dictionaries)
    folders = [] if given is None else [given if given.is_dir() else given.parent]
    try:
        path = given if given is not None and given.is_file() else _find_dictionary(None, [*folders, model.parent])
    except FileNotFoundError:
        return tokens
    return tokens.resolved(Dictionary.load(path).extended(tokens.added))


def _find_dictionary(language: str | None, folders: Sequence[Path]) -> Path:
    """dict.<language>.txt, or the dictionary of all languages."""
    own = "dict.*.txt" if language is None else f"dict.{language}.txt"
    for folder in folders:
        if language is not None and (folder / own).is_file():
            return folder / own
        for pattern in (*_SHARED, *(() if language else (own,))):
            if found := sorted(folder.glob(pattern)):
                return found[0]
    raise missing_dictionaries(f"{own} or {SHARED}", folders)


def _text_between(found: TextPipeline | Subwords | None, languages: Languages) -> TextPipeline | Subwords | None:
    if isinstance(found, TextPipeline):
        return found.changed(source_language=languages.source, target_language=languages.target)
    if not isinstance(found, SentencePiece):
        return found
    config = TextConfig(
        source_language=languages.source,
        target_language=languages.target,
        normalise_punctuation=False,
        tokeniser="none",
        dash_splits=False,
        escape=False,
        subwords="sentencepiece",
    )
    return TextPipeline(config, found)
