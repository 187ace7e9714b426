"""Reads the dictionaries, the text pipeline and the languages of Hugging Face's translation models."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, NamedTuple

from rskip.checkpoint.hugging_face import pieces
from rskip.checkpoint.hugging_face.families import VOCABULARY, Family, StackSettings
from rskip.checkpoint.hugging_face.folder import TOKENIZER_ADVICE, Folder
from rskip.checkpoint.hugging_face.tokens import (
    ADDED,
    ALL,
    FIRST,
    SPECIAL,
    TOKENIZER,
    TokenizerFiles,
    check_rows,
    dictionary_of,
    token_numbers,
)
from rskip.files.text_lines import read_lines
from rskip.settings.check import convert
from rskip.settings.errors import did_you_mean, shown
from rskip.text.dictionary import EOS, PAD, UNK, Dictionary
from rskip.text.languages import LanguageTokens, listed, meant_codes
from rskip.text.pipeline import CONFIG_FILE, RAW, TextConfig, TextPipeline
from rskip.text.subwords import BytePairEncoding, MarianPieces, WholePieces, load_subwords

OWN_TEXT = "text"
TARGET_VOCABULARY = "target_vocab.json"
_PIECES, _MERGES = "sentencepiece.bpe.model", "merges.txt"
_SPECIAL_PIECES = 3  # <unk>, <s> and </s> come first in the SentencePiece models
_MARIAN_LANGUAGE = re.compile(r">>([\w-]+)<<")
_WORD_END = "</w>"
Pair = tuple[str | None, str | None]  # source and target language


class Vocabulary(NamedTuple):
    """What makes text of tokens.

    pair: source and target language; None: the user has to say it.
    languages: the language tokens of a multilingual model.
    rows: the rows of the embeddings of source and target in the order of the dictionaries; None: their own.
    """

    text: TextPipeline
    source: Dictionary
    target: Dictionary
    pair: Pair
    languages: LanguageTokens | None = None
    rows: tuple[Sequence[int], Sequence[int]] | None = None


def read_vocabulary(
    family: Family, files: TokenizerFiles, config: StackSettings, sizes: tuple[int, int], languages: Pair
) -> Vocabulary:
    """The vocabulary of a folder.

    :param sizes: the rows of the embeddings of source and target.
    :param languages: source and target as the user gives them; None: the folder's own.
    """
    if family.languages is not None:
        return _multilingual(family, files, sizes[1], languages)
    return (_fsmt if family.arch == "fsmt" else _marian)(files, config, sizes, languages)


def _fsmt(files: TokenizerFiles, config: StackSettings, sizes: tuple[int, int], languages: Pair) -> Vocabulary:
    """FSMT marks the last unit of a word (`</w>`), and our dictionaries mark every other one (`@@`)."""
    folder, about = files.folder, files.about
    files.refuse_added((token for token in files.numbers() if token not in FIRST), "in FSMT")
    langs = convert(
        about.get("langs") or config.langs, tuple[str, str], name="langs", source=str(folder.path / TOKENIZER)
    )
    _given_pair(languages, langs, (), folder)
    text = TextConfig(
        source_language=langs[0],
        target_language=langs[1],
        normalise_punctuation="scripts",
        tokeniser="moses",
        lowercase=bool(about.get("do_lower_case")),
    )
    dictionaries = []
    for name, size in zip(("vocab-src.json", "vocab-tgt.json"), sizes, strict=True):
        source = str(folder.path / name)
        found = token_numbers(folder.read_object(name), source)
        numbers = {token if token in FIRST else _unit(token): number for token, number in found.items()}
        check_rows(numbers, size, source=source)
        dictionaries.append(dictionary_of(numbers, range(len(FIRST), size)))
    source_words, target_words = dictionaries
    return Vocabulary(TextPipeline(text, _merges(folder)), source_words, target_words, langs)


def _unit(token: str) -> str:
    return token.removesuffix(_WORD_END) if token.endswith(_WORD_END) else f"{token}@@"


def _merges(folder: Folder) -> BytePairEncoding:
    """The merges, in subword-nmt's notation, without their counts."""
    path = folder.file(_MERGES)
    lines = [line.split()[:2] for line in read_lines(path)]
    if lines and lines[0][:1] == ["#version:"]:
        lines = lines[1:]
    merges = "".join(f"{' '.join(units)}\n" for units in lines if units)
    try:
        return BytePairEncoding(f"#version: 0.2\n{merges}")
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _marian(files: TokenizerFiles, config: StackSettings, sizes: tuple[int, int], languages: Pair) -> Vocabulary:
    """The rows of the embeddings are put in the order of our dictionaries, behind a row for the start token, which is
    row 0."""
    folder, about = files.folder, files.about
    names = [VOCABULARY, VOCABULARY]
    if about.get("separate_vocabs", not config.share_encoder_decoder_embeddings and folder.has(TARGET_VOCABULARY)):
        names[1] = TARGET_VOCABULARY
    all_numbered = files.numbers()
    numbered = {token: number for token, number in all_numbered.items() if token not in (EOS, UNK, PAD)}
    if names[1] != names[0]:
        files.refuse_added(numbered, "with two vocabularies")
    added = files.added(numbered, fast=False, drops_spaces=True)
    further = {token.unit: numbered[token.content] for token in added}
    sides = [_marian_rows(folder, names[0], sizes[0], config, further)] * 2
    if (names[1], sizes[1]) != (names[0], sizes[0]):
        sides[1] = _marian_rows(folder, names[1], sizes[1], config, further)
    (source_rows, source), (target_rows, target) = sides
    matches = map(_MARIAN_LANGUAGE.fullmatch, source.tokens if source is target else ())  # as in MarianTokenizer
    codes = tuple(match[1] for match in matches if match)
    own = [about.get(f"{side}_lang") for side in ("source", "target")]
    own = [name if isinstance(name, str) and re.fullmatch(r"[\w+-]+", name) else None for name in own]
    given = _given_pair(languages, own, codes, folder)
    pair = given[0] or own[0] or "source", given[1] or own[1] or "target"
    # each text begins with a language token of its own if the target is the group's name
    unmarked = tuple(name for name in (pair[0], own[1] or "target") if name not in codes)
    tokens = LanguageTokens(codes=codes, form=">>{}<<", unmarked=unmarked, sources=pair[:1], encoder="target")
    of_user: Pair = pair if len(codes) < 2 else (pair[0], given[1])
    text: dict[str, Any] = {"source_language": pair[0], "target_language": of_user[1] or codes[0]}
    if folder.has(f"{OWN_TEXT}/{CONFIG_FILE}"):  # of `rskip export huggingface`
        pipeline = TextPipeline.load(folder.path / OWN_TEXT).changed(**text)
    else:
        folder.file(MarianPieces.target_file_name)
        units = load_subwords("marian", folder.file(MarianPieces.file_name).parent)
        steps = TextConfig(**RAW, **text, tokeniser="raw", subwords="marian", added_tokens=added)
        pipeline = TextPipeline(steps, units)
    return Vocabulary(pipeline, source, target, of_user, tokens if codes else None, (source_rows, target_rows))


def _given_pair(given: Pair, own: Sequence[str | None], codes: Sequence[str], folder: Folder) -> Pair:
    """The model's codes for the given languages, which it must have if its own two are known.

    :param codes: the target languages that have a token. The own target is then the name of the group.
    """
    found: list[str | None] = []
    for side, code, name, known in zip(("source", "target"), given, own, ((), codes), strict=True):
        possible = known if name is None else (*known, name)
        if code is None or not possible:
            found.append(code)
            continue
        fitting = meant_codes(code, possible)
        if len(fitting) != 1:
            problem = f"is {shown(code)}, but the model translates {own[0]} to {own[1]}"
            if known:
                problem = f"is {shown(code)}{did_you_mean(code, known)}, which the model doesn't have"
            expected = f"one of {listed([*filter(None, fitting)] or known)}" if known else ""
            raise folder.error(problem, name=f"{side}_language", expected=expected)
        found += fitting
    return found[0], found[1]


def _marian_rows(
    folder: Folder, name: str, size: int, config: StackSettings, added: Mapping[str, int]
) -> tuple[list[int], Dictionary]:
    """Our order of a vocabulary's rows: start, padding, end, unknown, and the others in their own order.

    :param name: the file of the vocabulary.
    :param added: further tokens and their rows.
    """
    source = str(folder.path / name)
    numbers = {**token_numbers(folder.read_object(name), source), **added}
    if UNK not in numbers:
        raise folder.error(f"has no {UNK}", file=name, advice="give the files of one model")
    check_rows(numbers, size, source=source, first={})
    padding = numbers.get(PAD, config.pad_token_id) if name == TARGET_VOCABULARY else config.pad_token_id
    # only the decoder has a start; with two vocabularies, its number may be too large for the source
    start = padding if name == VOCABULARY and config.decoder_start_token_id >= size else config.decoder_start_token_id
    special = {"decoder_start_token_id": start, "pad_token_id": padding, "eos_token_id": config.eos_token_id}
    for setting, row in special.items():
        if not 0 <= row < size:
            raise folder.wrong(setting, row, f"less than {size:,}, the tokens of the model")
    first = [*special.values(), numbers[UNK]]
    others = [row for row in range(size) if row not in first[1:]]
    return [*first, *others], dictionary_of(numbers, others)


def _multilingual(family: Family, files: TokenizerFiles, size: int, pair: Pair) -> Vocabulary:
    """M2M-100, NLLB and mBART, whose rows have fairseq's order.

    The numbers of the tokens are in vocab.json, or in tokenizer.json, or are those of sentencepiece.bpe.model. Further
    files number or list the tokens that are added to it.
    """
    folder, content = files.folder, files.content
    has_file, has_pieces = family.arch == "m2m_100", folder.has(_PIECES)
    source = str(folder.path / ALL)
    vocabulary = token_numbers(folder.read_object(VOCABULARY), str(folder.path / VOCABULARY)) if has_file else {}
    numbered = files.numbers()
    splits = pieces.splits_at_white_space(content)
    added = files.added(
        (token for token in numbered if token not in FIRST and not family.code(token)),
        fast=not has_file,
        drops_spaces=family.drops_spaces or splits,
    )
    if has_pieces:
        units = WholePieces.load(folder.file(_PIECES))
    elif not content:
        raise FileNotFoundError(f"no {ALL} or {_PIECES} in {folder.path}: {TOKENIZER_ADVICE}")
    else:
        special = numbered.keys() - {token.content for token in added if not token.special}
        units = pieces.read_units(content, special=special, source=source)
    if not vocabulary:
        own = {name: number for number, name in enumerate(units.pieces()[_SPECIAL_PIECES:], start=len(FIRST))}
        vocabulary = pieces.vocabulary(content, source=source) if content else {**FIRST, **own}
    names = units.units()
    if 2 * sum(name in vocabulary for name in names) <= len(names):
        raise folder.error("has other units than the vocabulary", file=_PIECES, advice="give the files of one model")
    found = _language_numbers(family, files, numbered, vocabulary, size)
    units_of = {token.content: token.unit for token in added}
    numbers = {**vocabulary, **{units_of.get(token, token): number for token, number in numbered.items()}, **found}
    check_rows(numbers, size, source=str(folder.path))
    dictionary = dictionary_of(numbers, range(len(FIRST), size))
    assert family.languages is not None
    tokens = replace(family.languages, codes=tuple(filter(None, map(family.code, found))))
    config = TextConfig(
        **RAW,
        source_language=tokens.codes[0],
        target_language=tokens.codes[1],
        tokeniser="none" if splits and not has_pieces else "raw",
        subwords="sentencepiece-whole",
        added_tokens=added,
    )
    return Vocabulary(TextPipeline(config, units), dictionary, dictionary, pair, tokens)


def _language_numbers(
    family: Family, files: TokenizerFiles, numbered: Mapping[str, int], vocabulary: Mapping[str, int], size: int
) -> dict[str, int]:
    """The tokens of the languages and their rows, in the order of the rows."""
    found = {token: number for token, number in numbered.items() if family.code(token)}
    if not found:
        listed = [token for token in files.listed() if family.code(token)]
        assert family.languages is not None
        usual = [family.languages.token(code) for code in family.usual]
        is_part = {*listed} <= {*usual} and len(vocabulary) + len(usual) <= size
        free = count(len(vocabulary))
        places = {
            token: vocabulary[token] if token in vocabulary else next(free) for token in (usual if is_part else listed)
        }
        found = {token: places[token] for token in listed or usual if token in places}
    if len(found) < 2:
        names = f"{ALL}, {ADDED}, {TOKENIZER} and {SPECIAL}"
        others = [token for token in files.listed() if not family.code(token)]
        advice = "get all files of the model"
        if others:  # saved by an early transformers with additional_special_tokens, which replaced the languages
            names += f", which list {', '.join(others[:3])} in their place"
            advice = "take these files from the original model, and add tokens with tokenizer.add_tokens"
        raise files.folder.error(f"{len(found)} languages in {names}", expected="two or more", advice=advice)
    return dict(sorted(found.items(), key=lambda each: each[1]))
