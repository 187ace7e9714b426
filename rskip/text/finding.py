"""Finds the tokenizer of a model: its dictionaries, its text pipeline, and the languages that name these files."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import warnings
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from rskip.settings.errors import SettingError
from rskip.text.assumed import AssumedText, assumed_config
from rskip.text.dictionary import Dictionary
from rskip.text.pipeline import CONFIG_FILE, TextPipeline, TokenText
from rskip.text.subwords import BytePairEncoding, SentencePiece, Subwords
from rskip.text.tokenizer import Text, Tokenizer

TOKENS = "tokens"  # instead of a text pipeline's path, if sentences are tokens already
TEXT_SETTINGS = ("tokeniser", "lowercase", "normalise_punctuation", "dash_splits", "escape")
"""The fields of `TextConfig` that a user can set: the steps before the subword units."""
_FASTBPE = re.compile(rb"\S+ \S+ \d+\n")
_COUNT = re.compile(rb" \d+$", re.MULTILINE)

# The files of units in folders of fairseq's models, which have no pipeline.
_UNITS = (
    BytePairEncoding.file_name,
    "bpe.codes",
    "bpecodes",
    "code",
    SentencePiece.file_name,
    "sentencepiece.bpe.model",
)


class MissingSetting(SettingError, FileNotFoundError):
    """Raised if a file of a model was not found and a setting can name it."""


class Languages(NamedTuple):
    """The source and target language of a model."""

    source: str
    target: str


@dataclass(frozen=True, kw_only=True)
class TokenizerSettings:
    """What a user gives to find the tokenizer of a model; None: what the model's files say.

    :param dictionaries: the folder of dict.<language>.txt, or of a multilingual model the dictionary of all languages.
    :param text: see `find_text`.
    :param languages: source and target.
    :param steps: see `build_text`.
    """

    dictionaries: str | os.PathLike[str] | None = None
    text: str | os.PathLike[str] | TextPipeline | None = None
    languages: tuple[str | None, str | None] = (None, None)
    steps: Mapping[str, Any] = field(default_factory=dict)


def find_tokenizer(
    model: Path,
    settings: TokenizerSettings,
    *,
    own_languages: tuple[str | None, str | None],
    data: Sequence[Path],
) -> Tokenizer:
    """The tokenizer of a model.

    :param model: the model's file. The tokenizer's files may be next to it.
    :param own_languages: source and target as named in the model's file.
    :param data: folders of its training data.
    :raises FileNotFoundError: a file is missing. The error says what to give.
    :raises ValueError: a file is damaged, the text pipeline is for other languages, or a setting is not possible.
    """
    given = [] if settings.dictionaries is None else [Path(settings.dictionaries)]
    folders = [*given, model.parent, *data]
    if missing := [folder for folder in given if not folder.is_dir()]:
        raise FileNotFoundError(f"no folder {missing[0]}: give the folder with the dictionaries, dict.*.txt")
    if not any(path for folder in folders for path in folder.glob("dict.*.txt")):
        raise missing_dictionaries("dict.*.txt", folders)
    found = find_text(settings.text, folders)
    pipeline = (found.source_language, found.target_language) if isinstance(found, TextPipeline) else None
    try:
        known = find_languages(given=settings.languages, own=own_languages, pipeline=pipeline, folders=folders)
        check_languages(found, known, given=settings.languages, own=own_languages)
    except SettingError as error:
        raise (error if error.name else error.within(source=str(model))) from None
    sides = zip(known, own_languages, strict=True)
    source, target = (Dictionary.load(find_dictionary(names, folders)) for names in sides)
    return Tokenizer(build_text(found, known, dictionary=source, settings=settings.steps), source, target)


def find_languages(
    *,
    given: tuple[str | None, str | None],
    own: tuple[str | None, str | None],
    pipeline: tuple[str, str] | None,
    folders: Sequence[Path],
) -> Languages:
    """The model's languages.

    The first of these sources that has them counts:

    - the given languages
    - the model's file
    - the text pipeline
    - the names of data files next to the dictionaries (`train.en-de.en.idx`)
    - the names of the two dictionaries, if one language is known

    :param own: the languages in the model's file.
    :raises SettingError: the languages are unknown, or the given ones contradict the file.
    """
    if own[0] != own[1] and given == own[::-1]:
        raise SettingError("", f"the model translates {own[0]} to {own[1]}, not {given[0]} to {given[1]}")
    source, target = given[0] or own[0], given[1] or own[1]
    pairs: Iterable[tuple[str, str]] = _language_pairs(pipeline, folders)
    for pair in pairs:
        if source and target:
            break
        if source == pair[1] or target == pair[0]:
            pair = (pair[1], pair[0])
        if source in (None, pair[0]) and target in (None, pair[1]):
            source, target = pair
    dictionaries = sorted({name for folder in folders for name in _dictionary_names(folder)})
    if (source is None) != (target is None) and len(dictionaries) == 2 and (source or target) in dictionaries:
        other = next(name for name in dictionaries if name != (source or target))
        source, target = source or other, target or other
    if not (source and target):
        found = ", ".join(f"dict.{name}.txt" for name in dictionaries) or "none"
        missing = " and ".join(side for side, known in (("source", source), ("target", target)) if not known)
        raise SettingError(
            "", f"the checkpoint doesn't say what it translates: give the {missing} language (dictionaries: {found})"
        )
    return Languages(source, target)


def find_dictionary(names: Iterable[str | None], folders: Sequence[Path]) -> Path:
    """The first existing dict.<name>.txt, over the folders in order and, within each, over the names.

    :raises FileNotFoundError: no such file exists.
    """
    wanted = [f"dict.{name}.txt" for name in names if name]
    for folder in folders:
        for name in wanted:
            if (folder / name).is_file():
                return folder / name
    raise missing_dictionaries(wanted[0], folders)


def missing_dictionaries(name: str, folders: Sequence[Path]) -> MissingSetting:
    """The error for a dictionary that is in none of the folders."""
    return MissingSetting(
        "dictionaries",
        f"must be given: no {name} in {' or '.join(map(str, folders))}",
        expected="the folder that `rskip prepare` or fairseq-preprocess wrote",
    )


def find_text(
    text: str | os.PathLike[str] | TextPipeline | None, folders: Sequence[Path]
) -> TextPipeline | Subwords | None:
    """The text pipeline, or only its subword units, or None if the text is tokens already.

    :param text: a pipeline; a folder with a pipeline or units; a file of a pipeline; a file of units (byte-pair codes,
        a SentencePiece model); "tokens"; None: search in `folders` and their subfolders text.
    :raises FileNotFoundError: nothing was found.
    :raises ValueError: a file is damaged.
    """
    if isinstance(text, TextPipeline):
        return text
    if text == TOKENS:
        return None
    if text is None:
        places = [place for folder in folders for place in (folder / "text", folder)]
    else:
        places = [Path(text)]
        if places[0].is_file():
            return _pipeline_with(places[0]) or load_units(places[0])
        if not places[0].is_dir():
            raise FileNotFoundError(f"no text pipeline {text}: expected a folder, or a file of subword units")
    for place in places:
        if (place / CONFIG_FILE).is_file():
            return TextPipeline.load(place)
        for name in _UNITS:
            if (place / name).is_file():
                return load_units(place / name)
    raise MissingSetting(
        "text",
        f"must be given: no text pipeline in {' or '.join(dict.fromkeys(map(str, places[-1:] if text else folders)))}",
        expected=f'{CONFIG_FILE}\'s folder, BPE codes, a SentencePiece model, or "{TOKENS}" if the text is tokens',
    )


def _pipeline_with(file: Path) -> TextPipeline | None:
    """The pipeline in the file's folder, if the file belongs to it."""
    if not (file.parent / CONFIG_FILE).is_file():
        return None
    pipeline = TextPipeline.load(file.parent)
    return pipeline if file.name in (CONFIG_FILE, *pipeline.files()) else None


def load_units(path: Path) -> Subwords:
    """Reads subword units: byte-pair codes, which are recognised by their first line, or a SentencePiece model.

    fastBPE's codes have a count after each merge, and no line with a version.

    :raises ValueError: the file is neither.
    """
    data = path.read_bytes()
    codes = data.removeprefix(BOM_UTF8).replace(b"\r\n", b"\n")
    if _FASTBPE.match(codes):
        codes = b"#version: 0.2\n" + _COUNT.sub(b"", codes)
    if codes.startswith(b"#version"):
        try:
            return BytePairEncoding(codes.decode("utf-8"))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
    with contextlib.suppress(ValueError):
        return SentencePiece(data)
    raise ValueError(
        f"{path} holds no subword units: neither byte-pair codes of subword-nmt (their first line is '#version: 0.2') "
        "or fastBPE, nor a SentencePiece model"
    )


def check_languages(
    found: TextPipeline | Subwords | None,
    languages: Languages,
    *,
    given: tuple[str | None, str | None],
    own: tuple[str | None, str | None],
) -> None:
    """:raises SettingError: the pipeline is for other languages, in both directions; names a given language."""
    if not isinstance(found, TextPipeline):
        return
    pair: tuple[str | None, str | None] = (found.source_language, found.target_language)
    if {*languages} != {*pair}:
        pair = own if {*own} == {*pair} else pair
        for side, asked, right in zip(("source", "target"), given, pair, strict=True):
            if asked not in (None, right):
                problem = f"is {asked}: this model translates {pair[0]} to {pair[1]}"
                raise SettingError(f"{side}_language", problem)
        raise SettingError(
            "",
            f"the text pipeline is for {found.source_language} and {found.target_language}, but the model translates "
            f"{languages.source} to {languages.target}: give its own pipeline (text), or its languages",
        )


def build_text(
    found: TextPipeline | Subwords | None, languages: Languages, *, dictionary: Dictionary, settings: Mapping[str, Any]
) -> Text:
    """The text pipeline of a model for these languages, from the result of `find_text`.

    A pipeline for the other direction is reversed. If there are only units, the steps before them are inferred from the
    dictionary, with a warning (`AssumedText`), unless SentencePiece takes raw text.

    :param dictionary: the dictionary of the source language.
    :param settings: values of `TEXT_SETTINGS`, which override the pipeline's or the inferred ones.
    :raises SettingError: a setting is unknown or has a wrong value, or the text is tokens already.
    """
    for name in settings:
        if name not in TEXT_SETTINGS:
            raise SettingError.of_unknown_key("text_settings", name, TEXT_SETTINGS)
        if found is None:
            raise SettingError("text", f'is "{TOKENS}", so {name} has no effect', advice="leave one of them out")
    if found is None:
        return TokenText(*languages)
    if isinstance(found, TextPipeline):
        pipeline = found if languages.source == found.source_language else found.reversed()
        return pipeline.changed(**settings) if settings else pipeline
    config = assumed_config(found, dictionary, source=languages.source, target=languages.target)
    pipeline = TextPipeline(dataclasses.replace(config, **settings), found)
    as_it_is = isinstance(found, SentencePiece) and config.tokeniser == "none" and not config.lowercase
    if not as_it_is and not settings.keys() >= {*TEXT_SETTINGS}:
        warnings.warn(AssumedText(pipeline.config), stacklevel=5)  # the caller of Translator.from_pretrained
    return pipeline


def _language_pairs(pipeline: tuple[str, str] | None, folders: Sequence[Path]) -> Iterator[tuple[str, str]]:
    if pipeline is not None:
        yield pipeline
    for folder in folders:
        for path in sorted(folder.glob("*.*-*.*.idx")):
            source, _, target = path.name.split(".")[1].partition("-")
            yield source, target


def _dictionary_names(folder: Path) -> list[str]:
    names = (path.name.split(".") for path in folder.glob("dict.*.txt"))
    return [parts[1] for parts in names if len(parts) == 3]
