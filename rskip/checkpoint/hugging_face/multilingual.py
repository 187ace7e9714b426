"""Reads the folders of Hugging Face's multilingual models, whose rows have fairseq's order.

    M2M100ForConditionalGeneration   M2M-100, WMT21, and NLLB without experts: a pre-norm Transformer of ours
    MBartForConditionalGeneration    mBART-50, and fine-tuned mBART-25: with learned positions and normalised embeddings

A vocabulary is vocab.json, or the model of tokenizer.json, or the units of sentencepiece.bpe.model. Further files
number or list the tokens that are added to it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import NamedTuple

from rskip.checkpoint.checkpoint import Checkpoint
from rskip.checkpoint.hugging_face import common, pieces
from rskip.checkpoint.hugging_face.folder import TOKENIZER_ADVICE, Folder
from rskip.checkpoint.hugging_face.model import HuggingFaceModel
from rskip.checkpoint.stock import PRENORM
from rskip.text.languages import LanguageTokens
from rskip.text.pipeline import TextConfig, TextPipeline
from rskip.text.subwords import WholePieces

PIECES, VOCABULARY = "sentencepiece.bpe.model", "vocab.json"
_SPECIAL_PIECES = 3  # <unk>, <s> and </s> come first in the SentencePiece models
Pair = tuple[str | None, str | None]


class _Languages(NamedTuple):
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


# `language_codes` of tokenizer_config.json: the languages in the order of their rows, for folders that don't list them
_M2M_USUAL = {
    "m2m100": (
        "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi hr ht hu "
        "hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or pa pl ps pt "
        "ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu"
    ),
    "wmt21": "en ha is ja cs ru zh de",
}
_MBART_USUAL = (
    "ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT lv_LV my_MM ne_NP nl_XX "
    "ro_RO ru_RU si_LK tr_TR vi_VN zh_CN af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN mn_MN mr_IN "
    "pl_PL ps_AF pt_XX sv_SE sw_KE ta_IN te_IN th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI"
)
_PLAIN = LanguageTokens(form="{}", encoder="source", decoder="first", shows_others=False)
_M2M = _Languages(replace(_PLAIN, form="__{}__"), r"[a-z]{2,3}(?:[_-]\w+)?", drops_spaces=True)
_NLLB = _Languages(_PLAIN, r"[a-z]{3}_[A-Z][a-z]{3}")
_MBART50 = _Languages(_PLAIN, r"[a-z]{2,3}_[A-Z]{2}", _MBART_USUAL.split())
_LEGACY = replace(_PLAIN, encoder_place="after end")
# a target begins and ends with its language's token, as in fairseq
_MBART25 = _Languages(
    replace(_LEGACY, decoder="start and end"), _MBART50.pattern, _MBART_USUAL.split()[:25], drops_spaces=True
)


def read_m2m(folder: Folder, *, languages: Pair) -> HuggingFaceModel:
    """The model of an M2M-100 or NLLB folder. See `read_hugging_face`."""
    config = common.read_settings(folder)
    common.check_fairseq_order(config, folder)
    about = common.read_optional(folder, common.TOKENIZER)
    tokenizer = str(about.get("tokenizer_class"))
    is_nllb = tokenizer.startswith("Nllb") or not (tokenizer.startswith("M2M100") or folder.has(VOCABULARY))
    weights = folder.tensors()
    tables = common.shared_tables(weights, config, folder)
    vocabulary = None
    if is_nllb:
        kind = _NLLB._replace(tokens=_LEGACY) if about.get("legacy_behaviour") else _NLLB
    else:
        usual = about.get("language_codes") or "m2m100"
        if usual not in _M2M_USUAL:
            raise folder.wrong("language_codes", usual, f"one of {', '.join(_M2M_USUAL)}", file=common.TOKENIZER)
        kind = _M2M._replace(usual=_M2M_USUAL[usual].split())
        vocabulary = common.token_numbers(folder.read_object(VOCABULARY), source=str(folder.path / VOCABULARY))
    model = {**common.stack_weights(weights), **tables.weights()}
    arch = "nllb" if is_nllb else "m2m_100"
    checkpoint = common.checkpoint(arch, model, config, connection=PRENORM, learned=False, **tables.settings())
    return _model(folder, kind, languages, checkpoint, size=len(tables.target), vocabulary=vocabulary)


def read_mbart(folder: Folder, *, languages: Pair) -> HuggingFaceModel:
    """The model of an mBART folder. See `read_hugging_face`."""
    config = common.read_settings(folder, activation_function="gelu", scale_embedding=False, decoder_start_token_id=-1)
    is_mbart50 = _is_mbart50(config, folder)
    common.check_fairseq_order(config, folder, any_start=not is_mbart50)
    weights = folder.tensors()
    tables = common.shared_tables(weights, config, folder)
    model = {**common.stack_weights(weights), **tables.weights()}
    positions = [f"{side}.embed_positions.weight" for side in ("encoder", "decoder")]
    model |= {name: weights[f"model.{name}"] for name in positions if f"model.{name}" in weights}
    if has_bias := common.BIAS in weights and bool(weights[common.BIAS].any()):
        model["decoder.output_projection.bias"] = weights[common.BIAS].flatten()
    own = {"layernorm_embedding": True, "output_bias": has_bias, **tables.settings()}
    kind, arch = (_MBART50, "mbart50") if is_mbart50 else (_MBART25, "mbart")
    checkpoint = common.checkpoint(arch, model, config, connection=PRENORM, learned=True, **own)
    return _model(folder, kind, languages, checkpoint, size=len(tables.target))


def _is_mbart50(config: common.StackSettings, folder: Folder) -> bool:
    """As the tokenizer's class says, or else: decoding starts from the end token."""
    kind = common.read_optional(folder, common.TOKENIZER).get("tokenizer_class") or config.tokenizer_class
    if isinstance(kind, str) and kind.startswith("MBart"):
        return kind.startswith("MBart50")
    return config.decoder_start_token_id == config.eos_token_id


def _model(
    folder: Folder,
    languages: _Languages,
    pair: Pair,
    checkpoint: Checkpoint,
    *,
    size: int,
    vocabulary: Mapping[str, int] | None = None,
) -> HuggingFaceModel:
    """The model with the vocabulary, text and languages of its folder.

    :param size: the number of rows of the embedding.
    :param vocabulary: the numbers of the tokens, if a file of their own has them.
    """
    content = folder.read_object(common.ALL) if folder.has(common.ALL) else None
    source = str(folder.path / common.ALL)
    numbered = common.numbered_tokens(folder, content or {})
    splits = pieces.splits_at_white_space(content or {})
    added = common.added_tokens(
        folder,
        content or {},
        [token for token in numbered if token not in common.FIRST and not languages.code(token)],
        fast=vocabulary is None,
        drops_spaces=languages.drops_spaces or splits,
    )
    if folder.has(PIECES):
        units = WholePieces.load(folder.file(PIECES))
    elif content is None:
        raise FileNotFoundError(f"no {common.ALL} or {PIECES} in {folder.path}: {TOKENIZER_ADVICE}")
    else:
        special = numbered.keys() - {token.content for token in added if not token.special}
        units = pieces.read_units(content, special=special, source=source)
    if vocabulary is None:
        names = units.pieces()[_SPECIAL_PIECES:]
        own = {**common.FIRST, **{name: number for number, name in enumerate(names, start=len(common.FIRST))}}
        vocabulary = own if content is None else pieces.vocabulary(content, source=source)
    _check_units(units, vocabulary, folder)
    found = _language_numbers(folder, languages, numbered, vocabulary, size)
    units_of = {token.content: token.unit for token in added}
    rows = {**vocabulary, **{units_of.get(token, token): number for token, number in numbered.items()}, **found}
    dictionary = common.dictionary_of(rows, size, source=str(folder.path))
    tokens = replace(languages.tokens, codes=tuple(filter(None, map(languages.code, found))))
    config = TextConfig(
        source_language=tokens.codes[0],
        target_language=tokens.codes[1],
        normalise_punctuation=False,
        tokeniser="none" if splits and not folder.has(PIECES) else "raw",
        dash_splits=False,
        escape=False,
        subwords="sentencepiece-whole",
        added_tokens=added,
    )
    return HuggingFaceModel(
        checkpoint=checkpoint,
        text=TextPipeline(config, units),
        source=dictionary,
        target=dictionary,
        pair=pair,
        languages=tokens,
    )


def _check_units(units: WholePieces, vocabulary: Mapping[str, int], folder: Folder) -> None:
    """Refuses a SentencePiece model most of whose units the vocabulary lacks."""
    names = units.units()
    if 2 * sum(name in vocabulary for name in names) <= len(names):
        raise folder.error("has other units than the vocabulary", file=PIECES, advice="give the files of one model")


def _language_numbers(
    folder: Folder, languages: _Languages, numbered: Mapping[str, int], vocabulary: Mapping[str, int], size: int
) -> dict[str, int]:
    """The tokens of the languages and their rows, in the order of the rows."""
    found = {token: number for token, number in numbered.items() if languages.code(token)}
    if not found:
        listed = [token for token in common.listed_tokens(folder) if languages.code(token)]
        usual = [languages.tokens.token(code) for code in languages.usual]
        is_part = {*listed} <= {*usual} and len(vocabulary) + len(usual) <= size
        free = count(len(vocabulary))
        places = {
            token: vocabulary[token] if token in vocabulary else next(free) for token in (usual if is_part else listed)
        }
        found = {token: places[token] for token in listed or usual if token in places}
    if len(found) < 2:
        files = f"{common.ALL}, {common.ADDED}, {common.TOKENIZER} and {common.SPECIAL}"
        problem = f"{len(found)} languages in {files}"
        raise folder.error(problem, expected="two or more", advice="get all files of the model")
    return dict(sorted(found.items(), key=lambda each: each[1]))
