"""Reads the folders of Hugging Face's MarianMTModel, such as those of the opus-mt models.

The model is a post-norm Transformer of ours. Three things differ from fairseq's: tokens have other numbers, targets
start with a token of their own, and each token's logit has a bias. The rows of the embeddings are therefore put in the
order of our dictionaries, behind a row for that start token, which is row 0. Its bias keeps it from being generated.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from rskip.checkpoint.hugging_face import common
from rskip.checkpoint.hugging_face.folder import Folder
from rskip.checkpoint.hugging_face.model import HuggingFaceModel
from rskip.checkpoint.stock import POSTNORM
from rskip.settings.errors import SettingError, did_you_mean, shown
from rskip.text.added import AddedToken
from rskip.text.dictionary import EOS, PAD, UNK, Dictionary
from rskip.text.languages import LanguageTokens, listed, meant_codes
from rskip.text.pipeline import CONFIG_FILE, TextConfig, TextPipeline
from rskip.text.subwords import MarianPieces, load_subwords

OWN_TEXT = "text"
VOCABULARY, TARGET_VOCABULARY = "vocab.json", "target_vocab.json"
_NEVER = -1e4  # a logit that is never the best, and that float16 can hold
_FIRST_POSITION = 2  # row of the first position in our tables
_POSITIONS = ("encoder.embed_positions.weight", "decoder.embed_positions.weight")
_LANGUAGE = re.compile(r">>([\w-]+)<<")
_Rows = tuple[Tensor, Dictionary]  # the rows of a Hugging Face embedding in the order of our dictionary


_DEFAULTS = {
    "activation_function": "gelu",
    "scale_embedding": False,
    "decoder_start_token_id": 58100,
    "pad_token_id": 58100,
    "eos_token_id": 0,
}


def read(folder: Folder, *, languages: tuple[str | None, str | None]) -> HuggingFaceModel:
    """The model of a Marian folder. See `read_hugging_face`."""
    config = common.read_settings(folder, **_DEFAULTS)
    about = common.read_optional(folder, common.TOKENIZER)
    weights = folder.tensors()
    source, target = _tables(weights, config, folder)
    names = [VOCABULARY, VOCABULARY]
    if about.get("separate_vocabs", not config.share_encoder_decoder_embeddings and folder.has(TARGET_VOCABULARY)):
        names[1] = TARGET_VOCABULARY
    all_numbered = common.numbered_tokens(folder, {})
    numbered = {token: number for token, number in all_numbered.items() if token not in (EOS, UNK, PAD)}
    if names[1] != names[0]:
        common.refuse_added(numbered, "with two vocabularies", folder)
    added = common.added_tokens(folder, {}, numbered, fast=False, drops_spaces=True)
    further = {token.unit: numbered[token.content] for token in added}
    rows = [_rows(folder, names[0], len(source), config, further)] * 2
    if (names[1], len(target)) != (names[0], len(source)):
        rows[1] = _rows(folder, names[1], len(target), config, further)
    shared = source is target and rows[0] is rows[1]
    dictionaries = [dictionary for _, dictionary in rows]
    codes = _codes(dictionaries[0], dictionaries[1])
    source_language, target_language, tokens = _pair(about, languages, codes, source=str(folder.path))
    tied = config.tie_word_embeddings or common.OUTPUT not in weights
    model = {
        **common.stack_weights(weights),
        **_embeddings(weights, (source, target), rows, shared=shared, tied=tied),
        **{name: _positions(weights, name, config) for name in _POSITIONS},
    }
    return HuggingFaceModel(
        checkpoint=common.checkpoint(
            "marian",
            model,
            config,
            connection=POSTNORM,
            learned=True,
            share_all_embeddings=shared and tied,
            share_decoder_input_output_embed=tied,
            output_bias=True,
            start="begin",
        ),
        text=_text(folder, source_language, target_language or codes[0], added),
        source=dictionaries[0],
        target=dictionaries[1],
        pair=(source_language, target_language),
        languages=tokens,
    )


def _codes(source: Dictionary, target: Dictionary) -> tuple[str, ...]:
    """The target languages that have a token."""
    if source is not target:  # as in MarianTokenizer
        return ()
    return tuple(match[1] for match in map(_LANGUAGE.fullmatch, source.tokens) if match)


def _pair(
    about: Mapping[str, Any], given: tuple[str | None, str | None], codes: tuple[str, ...], *, source: str
) -> tuple[str, str | None, LanguageTokens | None]:
    """The languages that are given, or else those of `about`, the content of tokenizer_config.json, and their tokens.

    The target language must be given if several have a token. The target in `about` then means that each text begins
    with a language token of its own.

    :param codes: the target languages that have a token.
    """
    names = [about.get(f"{side}_lang") for side in ("source", "target")]
    own = [name if isinstance(name, str) and re.fullmatch(r"[\w+-]+", name) else None for name in names]
    wanted = list(given)
    for at, (side, known) in enumerate((("source", ()), ("target", codes))):
        code, name = wanted[at], own[at]
        possible = known if name is None else (*known, name)
        if code is None or not possible:
            continue
        fitting = meant_codes(code, possible)
        if len(fitting) != 1:
            problem = f"is {shown(code)}, but the model translates {own[0]} to {own[1]}"
            if known:
                problem = f"is {shown(code)}{did_you_mean(code, known)}, which the model doesn't have"
            expected = f"one of {listed(fitting or known)}" if known else ""
            raise SettingError(f"{side}_language", problem, expected=expected, source=source)
        wanted[at] = fitting[0]
    languages = wanted[0] or own[0] or "source", wanted[1] or own[1] or "target"
    if not codes:
        return *languages, None
    unmarked = tuple(name for name in (languages[0], own[1] or "target") if name not in codes)
    tokens = LanguageTokens(
        codes=codes, form=">>{}<<", unmarked=unmarked, sources=(languages[0],), encoder="target"
    )  # fmt: skip
    return languages[0], languages[1] if len(codes) == 1 else wanted[1], tokens


def _text(folder: Folder, source: str, target: str, added: tuple[AddedToken, ...]) -> TextPipeline:
    """What Hugging Face's tokenizer does: SentencePiece takes sentences as they are.

    A folder that `rskip export huggingface` wrote has its own text pipeline.
    """
    if folder.has(f"{OWN_TEXT}/{CONFIG_FILE}"):
        return TextPipeline.load(folder.path / OWN_TEXT).changed(source_language=source, target_language=target)
    for name in (MarianPieces.file_name, MarianPieces.target_file_name):
        folder.file(name)
    config = TextConfig(
        source_language=source,
        target_language=target,
        normalise_punctuation=False,
        tokeniser="raw",
        dash_splits=False,
        escape=False,
        subwords="marian",
        added_tokens=added,
    )
    return TextPipeline(config, load_subwords("marian", folder.path))


def _tables(weights: Mapping[str, Tensor], config: common.StackSettings, folder: Folder) -> tuple[Tensor, Tensor]:
    """The embeddings of source and target: (tokens, features) each."""
    tied = config.tie_word_embeddings
    if tied and config.share_encoder_decoder_embeddings:
        table = common.find_table(weights, common.TIED, folder)
        return table, table
    source = common.find_table(weights, (common.SIDES[0], common.SHARED), folder)
    names = (common.SIDES[1], common.SHARED, *((common.OUTPUT,) if tied else ()))
    return source, common.find_table(weights, names, folder)


def _rows(folder: Folder, name: str, size: int, config: common.StackSettings, added: Mapping[str, int]) -> _Rows:
    """Our order of a vocabulary's rows: start, padding, end, unknown, and the others in their own order.

    :param name: the file of the vocabulary.
    :param size: the number of rows.
    :param added: further tokens and their rows.
    """
    vocabulary = _vocabulary(folder, name, size, added)
    padding = vocabulary.get(PAD, config.pad_token_id) if name == TARGET_VOCABULARY else config.pad_token_id
    # only the decoder has a start; with two vocabularies, its number may be too large for the source
    start = padding if name == VOCABULARY and config.decoder_start_token_id >= size else config.decoder_start_token_id
    special = {"decoder_start_token_id": start, "pad_token_id": padding, "eos_token_id": config.eos_token_id}
    for setting, row in special.items():
        if not 0 <= row < size:
            raise folder.wrong(setting, row, f"less than {size:,}, the tokens of the model")
    first = [*special.values(), vocabulary[UNK]]
    tokens = {row: token for token, row in vocabulary.items() if token and "\n" not in token}
    others = [row for row in range(size) if row not in first[1:]]
    unnamed = (f"madeupword{number:04}" for number in range(size))
    return torch.tensor([*first, *others]), Dictionary(tokens.get(row) or next(unnamed) for row in others)


def _vocabulary(folder: Folder, name: str, size: int, added: Mapping[str, int]) -> dict[str, int]:
    """The tokens of a vocabulary's file and the added ones, and their rows in an embedding of so many rows."""
    vocabulary = {**common.token_numbers(folder.read_object(name), source=str(folder.path / name)), **added}
    most, fewest = max(vocabulary.values()), min(vocabulary.values())
    if UNK not in vocabulary or fewest < 0 or not size - common.MOST_UNNAMED <= most + 1 <= size:
        numbers = f"it has {UNK} and numbers its tokens up to {most:,}" if UNK in vocabulary else f"it has no {UNK}"
        problem = f"belongs to another model: {numbers}, but the embedding has {size:,} rows"
        raise folder.error(problem, file=name, advice="give the files of one model")
    return vocabulary


def _embeddings(
    weights: Mapping[str, Tensor],
    tables: tuple[Tensor, Tensor],
    rows: Sequence[_Rows],
    *,
    shared: bool,
    tied: bool,
) -> dict[str, Tensor]:
    """The embeddings, the output projection and its bias, in our order of rows."""
    source = tables[0][rows[0][0]]
    target = source if shared else tables[1][rows[1][0]]
    bias = weights.get(common.BIAS, tables[1].new_zeros(len(tables[1]))).flatten()[rows[1][0]]
    bias[0] = _NEVER
    return {
        "encoder.embed_tokens.weight": source,
        "decoder.embed_tokens.weight": target,
        "decoder.output_projection.weight": target if tied else weights[common.OUTPUT][rows[1][0]],
        "decoder.output_projection.bias": bias,
    }


def _positions(weights: Mapping[str, Tensor], name: str, config: common.StackSettings) -> Tensor:
    """The table of positions in the file, or else Marian's sines and cosines, behind the rows that are no positions."""
    table = weights.get(f"model.{name}")
    if table is None:
        length, features = config.max_position_embeddings, config.d_model
        numbers = torch.arange(0, features, 2, dtype=torch.float64) / features
        angles = torch.arange(length, dtype=torch.float64)[:, None] / 10000**numbers
        table = torch.cat([angles.sin(), angles[:, : features // 2].cos()], dim=1).float()
    return torch.cat([table.new_zeros(_FIRST_POSITION, table.size(1)), table])
