"""Finds the tokenizer of a model: its dictionaries, its text pipeline, and the languages that name these files."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import warnings
from codecs import BOM_UTF8
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rskip.settings.errors import SettingError
from rskip.text.dictionary import Dictionary
from rskip.text.languages import LanguageTokens
from rskip.text.pipeline import CONFIG_FILE, RAW, TextConfig, TextPipeline, TokenText
from rskip.text.subwords import BytePairEncoding, SentencePiece, Subwords, naming
from rskip.text.tokenizer import SHARED, Text, Tokenizer

TOKENS = "tokens"  # instead of a text pipeline's path, if sentences are tokens already
TEXT_SETTINGS = ("tokeniser", "lowercase", "normalise_punctuation", "dash_splits", "escape")
"""The fields of `TextConfig` that a user can set: the steps before the subword units."""
_FASTBPE = re.compile(rb"\S+ \S+ \d+\n")
_COUNT = re.compile(rb" \d+$", re.MULTILINE)
# names of the dictionary of all languages in models of rskip, mBART, NLLB and M2M-100
_SHARED = (SHARED, "dictionary.txt", "model_dict.*.txt")
# The files of units in folders of fairseq's models, which have no pipeline.
_UNITS = (
    BytePairEncoding.file_name,
    "bpe.codes",
    "bpecodes",
    "code",
    SentencePiece.file_name,
    "sentencepiece.bpe.model",
)
_SPECIAL = re.compile(r"<.*>|madeupword\d{4}")  # <unk> and the like, SentencePiece's bytes, and padding
_GLUED = re.compile(r".*[^\W\d_][,!?]")  # ends in a letter and a mark, which Moses' tokeniser would separate
_TYPOGRAPHIC = frozenset("\u201c\u201d\u201e\u2018\u2019\u201a\u00ab\u00bb\u2013\u2014\u2026")
_MARK = "\u2581"  # SentencePiece's space
_NORMALISED = {True: "punctuation normalised", False: "punctuation kept", "scripts": "normalised by Moses' scripts"}
Pair = tuple[str | None, str | None]  # source and target language


class MissingSetting(SettingError, FileNotFoundError):
    """Raised if a file of a model was not found and a setting can name it."""


@dataclass(frozen=True, kw_only=True)
class TokenizerSettings:
    """What a user gives to find the tokenizer of a model; None: what the model's files say.

    :param dictionaries: the folder of dict.<language>.txt, or of a multilingual model the dictionary of all languages.
    :param text: a pipeline; a folder with a pipeline or units; a file of a pipeline; a file of units (byte-pair codes,
        a SentencePiece model); "tokens"; None: search next to the model and in its data.
    :param languages: source and target.
    :param steps: values of `TEXT_SETTINGS`, which override the pipeline's or the inferred ones.
    """

    dictionaries: str | os.PathLike[str] | None = None
    text: str | os.PathLike[str] | TextPipeline | None = None
    languages: Pair = (None, None)
    steps: Mapping[str, Any] = field(default_factory=dict)


class AssumedText(UserWarning):
    """Warning: there is no pipeline.json, so the steps before the subword units were inferred from the dictionary.

    :param config: the assumed steps.

    assumption: the assumed steps in words.
    """

    def __init__(self, config: TextConfig) -> None:
        self.config = config
        self.assumption = f"no {CONFIG_FILE}: text is treated as the dictionary suggests: {described(config)}"
        super().__init__(f"{self.assumption} (text_settings change it)")


def find_tokenizer(
    model: Path,
    settings: TokenizerSettings,
    *,
    own_languages: Pair,
    data: Sequence[Path],
    tokens: LanguageTokens | None = None,
) -> Tokenizer:
    """The tokenizer of a model.

    Of a multilingual model, SentencePiece reads raw text, unless the settings or a pipeline.json have other steps.

    :param model: the model's file. The tokenizer's files may be next to it.
    :param own_languages: source and target as named in the model's file.
    :param data: folders of its training data.
    :param tokens: the language tokens of a multilingual model, which then translates between two of its languages.
    """
    folders, given = _places(settings.dictionaries, model, data)
    if tokens is None:
        if not any(path for folder in folders for path in folder.glob("dict.*.txt")):
            raise _missing_dictionaries("dict.*.txt", folders)
        found = _find_text(settings.text, folders)
        languages = _find_languages(settings.languages, own_languages, found, folders)
        source, target = (
            Dictionary.load(find_dictionary(names, folders)) for names in zip(languages, own_languages, strict=True)
        )
    else:
        wanted = tokens.check_pair(*settings.languages) if tokens.codes else settings.languages
        paths = [given or _find_shared(language, folders) for language in wanted]
        read = {path: Dictionary.load(path).extended(tokens.added) for path in dict.fromkeys(paths)}
        source, target = (read[path] for path in paths)
        tokens = tokens.resolved(target)
        languages = tokens.check_pair(*wanted)
        found = _find_text(settings.text, folders)
        sides: dict[str, Any] = {"source_language": languages[0], "target_language": languages[1]}
        if isinstance(found, TextPipeline):
            found = found.changed(**sides)
        elif isinstance(found, SentencePiece):
            found = TextPipeline(TextConfig(**sides, **RAW, tokeniser="none", subwords="sentencepiece"), found)
    return Tokenizer(build_text(found, languages, dictionary=source, settings=settings.steps), source, target, tokens)


def find_languages_of(
    tokens: LanguageTokens, model: Path, dictionaries: str | os.PathLike[str] | None
) -> LanguageTokens:
    """The language tokens with the languages of the model's dictionary, or unchanged if it is not found."""
    try:
        folders, given = _places(dictionaries, model)
        path = given or _find_shared(None, folders)
    except FileNotFoundError:
        return tokens
    return tokens.resolved(Dictionary.load(path).extended(tokens.added))


def find_dictionary(names: Iterable[str | None], folders: Sequence[Path]) -> Path:
    """The first existing dict.<name>.txt, over the folders in order and, within each, over the names."""
    wanted = [f"dict.{name}.txt" for name in names if name]
    for folder in folders:
        for name in wanted:
            if (folder / name).is_file():
                return folder / name
    raise _missing_dictionaries(wanted[0], folders)


def _places(
    dictionaries: str | os.PathLike[str] | None, model: Path, data: Sequence[Path] = ()
) -> tuple[list[Path], Path | None]:
    """The folders that may hold the dictionaries of a model, and the file that `dictionaries` names, if it is one."""
    if dictionaries is None:
        return [model.parent, *data], None
    given = Path(dictionaries)
    if not given.exists():
        raise FileNotFoundError(f"no folder {given}: give the folder with the dictionaries, or their file")
    is_file = given.is_file()
    return [given.parent if is_file else given, model.parent, *data], given if is_file else None


def _find_shared(language: str | None, folders: Sequence[Path]) -> Path:
    """dict.<language>.txt, or the dictionary of all languages."""
    own = "dict.*.txt" if language is None else f"dict.{language}.txt"
    for folder in folders:
        if language is not None and (folder / own).is_file():
            return folder / own
        for pattern in (*_SHARED, *(() if language else (own,))):
            if found := sorted(folder.glob(pattern)):
                return found[0]
    raise _missing_dictionaries(f"{own} or {SHARED}", folders)


def _missing_dictionaries(name: str, folders: Sequence[Path]) -> MissingSetting:
    return MissingSetting(
        "dictionaries",
        f"must be given: no {name} in {' or '.join(map(str, folders))}",
        expected="the folder that `rskip prepare` or fairseq-preprocess wrote",
    )


def _find_languages(
    given: Pair, own: Pair, text: TextPipeline | Subwords | None, folders: Sequence[Path]
) -> tuple[str, str]:
    """The model's source and target language.

    The first of these that has them counts: the given languages, the model's file (`own`), the text pipeline, the names
    of data files next to the dictionaries (`train.en-de.en.idx`), and, if one language is known, the names of the two
    dictionaries.
    """
    if own[0] != own[1] and given == own[::-1]:
        raise SettingError("", f"the model translates {own[0]} to {own[1]}, not {given[0]} to {given[1]}")
    source, target = given[0] or own[0], given[1] or own[1]
    pipeline = [(text.source_language, text.target_language)] if isinstance(text, TextPipeline) else []
    data = (path.name.split(".")[1].split("-", 1) for each in folders for path in sorted(each.glob("*.*-*.*.idx")))
    for pair in (*pipeline, *((first, second) for first, second in data)):
        if source and target:
            break
        if source == pair[1] or target == pair[0]:
            pair = (pair[1], pair[0])
        if source in (None, pair[0]) and target in (None, pair[1]):
            source, target = pair
    parts = (path.name.split(".") for folder in folders for path in folder.glob("dict.*.txt"))
    names = sorted({name for _, name, *others in parts if len(others) == 1})
    if (source is None) != (target is None) and len(names) == 2 and (source or target) in names:
        (other,) = {*names} - {source or target}
        source, target = source or other, target or other
    if not (source and target):
        found = ", ".join(f"dict.{name}.txt" for name in names) or "none"
        missing = " and ".join(side for side, known in (("source", source), ("target", target)) if not known)
        problem = f"the checkpoint doesn't say what it translates: give the {missing} language (dictionaries: {found})"
        raise SettingError("", problem)
    if pipeline and {*pipeline[0]} != {source, target}:
        problem = f"the text pipeline is for {pipeline[0][0]} and {pipeline[0][1]}, but the languages are {source} and"
        advice = "give the model's own pipeline (text), or its languages"
        raise SettingError("", f"{problem} {target}", advice=advice)
    return source, target


def _find_text(
    text: str | os.PathLike[str] | TextPipeline | None, folders: Sequence[Path]
) -> TextPipeline | Subwords | None:
    """The text pipeline, or only its subword units, or None if the text is tokens already.

    :param text: see `TokenizerSettings`; None: search in `folders` and their subfolders text.
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
            beside = places[0].parent / CONFIG_FILE
            pipeline = TextPipeline.load(beside.parent) if beside.is_file() else None
            if pipeline is not None and places[0].name in (CONFIG_FILE, *pipeline.files()):
                return pipeline
            return _load_units(places[0])
    for place in places:
        if (place / CONFIG_FILE).is_file():
            return TextPipeline.load(place)
        for name in _UNITS:
            if (place / name).is_file():
                return _load_units(place / name)
    raise MissingSetting(
        "text",
        f"is {text}, which holds no text pipeline"
        if text
        else f"must be given: no text pipeline in {' or '.join(dict.fromkeys(map(str, folders)))}",
        expected=f'{CONFIG_FILE}\'s folder, BPE codes, a SentencePiece model, or "{TOKENS}" if the text is tokens',
    )


def _load_units(path: Path) -> Subwords:
    """Reads subword units: byte-pair codes, which are recognised by their first line, or a SentencePiece model.

    fastBPE's codes have a count after each merge, and no line with a version.
    """
    data = path.read_bytes()
    codes = data.removeprefix(BOM_UTF8).replace(b"\r\n", b"\n")
    if _FASTBPE.match(codes):
        codes = b"#version: 0.2\n" + _COUNT.sub(b"", codes)
    if codes.startswith(b"#version"):
        with naming(path):
            return BytePairEncoding(codes.decode("utf-8"))
    with contextlib.suppress(ValueError):
        return SentencePiece(data)
    raise ValueError(
        f"{path} holds no subword units: neither byte-pair codes of subword-nmt (their first line is '#version: 0.2') "
        "or fastBPE, nor a SentencePiece model"
    )


def build_text(
    found: TextPipeline | Subwords | None,
    languages: tuple[str, str],
    *,
    dictionary: Dictionary,
    settings: Mapping[str, Any],
) -> Text:
    """The text pipeline of a model for these languages, from a pipeline or only units; None: the text is tokens.

    A pipeline for the other direction is reversed. If there are only units, the steps before them are inferred from the
    dictionary, with a warning (`AssumedText`), unless SentencePiece takes raw text.

    :param dictionary: the dictionary of the source language.
    :param settings: see `TokenizerSettings.steps`.
    """
    for name in settings:
        if name not in TEXT_SETTINGS:
            raise SettingError.of_unknown_key("text_settings", name, TEXT_SETTINGS)
        if found is None:
            raise SettingError("text", f'is "{TOKENS}", so {name} has no effect', advice="leave one of them out")
    if found is None:
        return TokenText(*languages)
    if isinstance(found, TextPipeline):
        pipeline = found if languages[0] == found.source_language else found.reversed()
        return pipeline.changed(**settings) if settings else pipeline
    config = assumed_config(found, dictionary, source=languages[0], target=languages[1])
    pipeline = TextPipeline(dataclasses.replace(config, **settings), found)
    as_it_is = isinstance(found, SentencePiece) and config.tokeniser == "none" and not config.lowercase
    if not as_it_is and not settings.keys() >= {*TEXT_SETTINGS}:
        warnings.warn(AssumedText(pipeline.config), stacklevel=5)  # the caller of Translator.from_pretrained
    return pipeline


def assumed_config(units: Subwords, dictionary: Dictionary, *, source: str, target: str) -> TextConfig:
    """The steps before the subword units, inferred from the source dictionary.

    Text is lowercased if no token has a capital letter. Moses' tokeniser is assumed if punctuation is separate. It
    splits dashes if `@-@` is a token (with SentencePiece: if `@` is more frequent than `-`). It escapes if no token has
    a quote or an apostrophe. Punctuation is normalised before byte-pair encoding if no token has a typographic quote or
    dash.

    :param source, target: languages.
    """
    pieces = isinstance(units, SentencePiece)
    # after a space; with byte-pair encoding, more than 1 % of the tokens end in a letter and a mark
    apart = any(_comes_first(dictionary, f"{_MARK}{mark}", mark) for mark in ",.")
    tokens = [token for token in dictionary.tokens if not _SPECIAL.fullmatch(token)]
    if not pieces:
        apart = sum(_GLUED.fullmatch(token) is not None for token in tokens) <= len(tokens) / 100
    has_case = any(token != token.upper() for token in tokens)
    return TextConfig(
        source_language=source,
        target_language=target,
        normalise_punctuation=not pieces and not any(_TYPOGRAPHIC & set(token) for token in tokens),
        tokeniser="moses" if apart else "none",
        lowercase=has_case and all(token == token.lower() for token in tokens),
        dash_splits=_comes_first(dictionary, "@", "-") if pieces else "@-@" in tokens,
        escape=not any('"' in token or "'" in token for token in tokens),
        subwords="sentencepiece" if pieces else "bpe",
    )


def _comes_first(dictionary: Dictionary, token: str, other: str) -> bool:
    """Whether the dictionary has `token`, and has it before `other`: frequent tokens come first."""
    return token in dictionary and (other not in dictionary or dictionary.index(token) < dictionary.index(other))


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
