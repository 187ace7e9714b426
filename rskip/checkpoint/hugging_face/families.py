"""The families of Hugging Face's translation models: their settings, their weights, and how they write languages.

Weights are PyTorch's tensors or NumPy's arrays. The module does not import torch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np

from rskip.checkpoint.checkpoint import Checkpoint
from rskip.checkpoint.hugging_face.folder import CONFIG, Folder
from rskip.checkpoint.hugging_face.tokens import TOKENIZER, TokenizerFiles
from rskip.checkpoint.stock_names import POSTNORM, PRENORM, from_stock
from rskip.settings.check import convert
from rskip.settings.kinds import Positions
from rskip.text.languages import LanguageTokens

VOCABULARY = "vocab.json"
OUTPUT, BIAS = "lm_head.weight", "final_logits_bias"
_SHARED = "model.shared.weight"
_SIDES = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")
_OUTPUTS = (OUTPUT, "model.decoder.output_projection.weight")
_POSITIONS = ("encoder.embed_positions.weight", "decoder.embed_positions.weight")
_FIRST_POSITION = 2  # row of the first position in our tables
_NEVER = -1e4  # a logit that is never the best, and that float16 can hold
# what belongs to tokens and positions
_APART = re.compile(
    r"model\.(shared|(encoder|decoder)\.embed_(tokens|positions)|decoder\.output_projection)\.weights?"
    r"|lm_head\.weight|final_logits_bias"
)
Activation = Literal["relu", "gelu", "tanh", "linear", "swish", "silu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh"]
ACTIVATIONS = {
    **{name: name for name in ("relu", "gelu", "tanh", "linear", "swish")},
    "silu": "swish",
    **dict.fromkeys(("gelu_new", "gelu_fast", "gelu_pytorch_tanh"), "gelu_accurate"),
}


class StackSettings(msgspec.Struct, kw_only=True):
    """What config.json says of a model; the defaults are those of transformers for most families."""

    d_model: int = 1024
    encoder_layers: int = 12
    encoder_ffn_dim: int = 4096
    encoder_attention_heads: int = 16
    decoder_layers: int = 12
    decoder_ffn_dim: int = 4096
    decoder_attention_heads: int = 16
    max_position_embeddings: Positions = 1024
    activation_function: Activation = "relu"
    scale_embedding: bool = True
    tie_word_embeddings: bool = True
    share_encoder_decoder_embeddings: bool = True
    pad_token_id: int = 1
    eos_token_id: int = 2
    decoder_start_token_id: int = 2  # -1: unknown
    langs: tuple[str, str] = ("en", "de")
    tokenizer_class: str = ""


class Family(NamedTuple):
    """What the folders of a family differ in.

    connection: of all blocks.
    learned: positions are learned, or in a table of sines and cosines with other rows than ours.
    defaults: what config.json means if it lacks a setting, where that differs from `StackSettings`.
    numbers: settings of config.json that must have these values, since our dictionaries number tokens so.
    settings: settings of ours that config.json doesn't determine.
    languages: the form of the language tokens, and where the model finds them; None: it has no tokens of this kind.
    pattern: what the languages' codes look like.
    usual: the codes of a model whose files don't list them, in the order of their rows.
    drops_spaces: the tokenizer drops spaces next to added tokens, even if tokenizer.json doesn't say it.
    """

    arch: str
    connection: str = PRENORM
    learned: bool = False
    defaults: Mapping[str, Any] = {}
    numbers: Mapping[str, int] = {"pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
    settings: Mapping[str, Any] = {}
    languages: LanguageTokens | None = None
    pattern: str = ""
    usual: Sequence[str] = ()
    drops_spaces: bool = False

    def code(self, token: str) -> str | None:
        """The language whose token this is; None: of no language."""
        assert self.languages is not None
        form = re.escape(self.languages.form).replace(re.escape("{}"), f"({self.pattern})")
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
_LEGACY = replace(_PLAIN, encoder_place="after end")
_M2M = Family("m2m_100", languages=replace(_PLAIN, form="__{}__"), pattern=r"[a-z]{2,3}(?:[_-]\w+)?", drops_spaces=True)
_NLLB = Family("nllb", languages=_PLAIN, pattern=r"[a-z]{3}_[A-Z][a-z]{3}")
_MBART50 = Family(
    "mbart50",
    learned=True,
    defaults={"activation_function": "gelu", "scale_embedding": False, "decoder_start_token_id": -1},
    settings={"layernorm_embedding": True},
    languages=_PLAIN,
    pattern=r"[a-z]{2,3}_[A-Z]{2}",
    usual=_MBART_USUAL.split(),
)
_MBART25 = _MBART50._replace(
    arch="mbart",
    numbers={"pad_token_id": 1, "eos_token_id": 2},
    languages=replace(_LEGACY, decoder="start and end"),  # of the target, as in fairseq
    usual=_MBART_USUAL.split()[:25],
    drops_spaces=True,
)
# post-norm Transformers of ours. FSMT is fairseq's. Marian's tokens have other numbers, targets start with a token of
# their own, and each token's logit has a bias.
_FSMT = Family(
    "fsmt",
    POSTNORM,
    defaults={"tie_word_embeddings": False, "share_encoder_decoder_embeddings": False},
)
_MARIAN = Family(
    "marian",
    POSTNORM,
    learned=True,
    defaults={
        "activation_function": "gelu",
        "scale_embedding": False,
        "decoder_start_token_id": 58100,
        "pad_token_id": 58100,
        "eos_token_id": 0,
    },
    numbers={},
    settings={"start": "begin"},
)


def find_family(kind: str, files: TokenizerFiles) -> Family:
    """The family of a folder's model.

    :param kind: its model type.
    """
    about, folder = files.about, files.folder
    name = about.get("tokenizer_class")
    if kind == "mbart":
        config = read_settings(folder, _MBART50)
        name = name or config.tokenizer_class
        if isinstance(name, str) and name.startswith("MBart"):
            return _MBART50 if name.startswith("MBart50") else _MBART25
        return _MBART50 if config.decoder_start_token_id == config.eos_token_id else _MBART25
    if kind != "m2m_100":
        return {"fsmt": _FSMT, "marian": _MARIAN}[kind]
    if str(name).startswith("Nllb") or not (str(name).startswith("M2M100") or folder.has(VOCABULARY)):
        return _NLLB._replace(languages=_LEGACY) if about.get("legacy_behaviour") else _NLLB
    usual = about.get("language_codes") or "m2m100"
    if usual not in _M2M_USUAL:
        raise folder.wrong("language_codes", usual, f"one of {', '.join(_M2M_USUAL)}", file=TOKENIZER)
    return _M2M._replace(usual=_M2M_USUAL[usual].split())


def read_settings(folder: Folder, family: Family) -> StackSettings:
    """The settings of a folder's model, whose tokens must be numbered as the family's."""
    given = {name: folder.config.get(name) for name in StackSettings.__struct_fields__}
    known = {**family.defaults, **{name: value for name, value in given.items() if value is not None}}
    if family.arch == "fsmt":
        known["share_encoder_decoder_embeddings"] = known["tie_word_embeddings"]
    return convert(known, StackSettings, source=str(folder.path / CONFIG))


def check_numbers(config: StackSettings, family: Family, folder: Folder) -> None:
    """Refuses a model that numbers padding and end otherwise than our dictionaries, or starts with another token."""
    for name, expected in family.numbers.items():
        if (found := getattr(config, name)) not in (expected, -1):
            raise folder.wrong(name, found, str(expected))


class Tables(NamedTuple):
    """The names of a model's embeddings and output projection: (tokens, features) each."""

    source: str
    target: str
    output: str


def find_tables(weights: Mapping[str, Any], config: StackSettings, folder: Folder) -> Tables:
    """The tables among the weights, which hold one of several that are tied."""

    def find(*names: str) -> str:
        for name in names:
            if name in weights:
                return name
        raise folder.error(f"the weights have no {names[0]}", expected="the weights of a translation model")

    tied = config.tie_word_embeddings
    if tied and config.share_encoder_decoder_embeddings:
        table = find(_SHARED, *_SIDES, *_OUTPUTS)
        return Tables(table, table, table)
    own = [name for name in _OUTPUTS if name in weights]
    source = find(_SIDES[0], _SHARED, *_SIDES)
    target = find(_SIDES[1], _SHARED, *own, *_SIDES) if tied or OUTPUT not in own else find(_SIDES[1], _SHARED)
    return Tables(source, target, own[0] if own and not tied else target)


def build_checkpoint(
    family: Family,
    config: StackSettings,
    weights: Mapping[str, Any],
    tables: Tables,
    rows: tuple[Sequence[int], Sequence[int]] | None,
) -> Checkpoint:
    """The checkpoint of a folder's model under our names, with arrays of the weights' type.

    :param rows: the rows of the embeddings of source and target in the order of our dictionaries; None: their own.
        Equal vocabularies are one. Row 0 is that of the start, which must not be generated.
    """
    layers = {name.removeprefix("model."): each for name, each in weights.items() if not _APART.fullmatch(name)}
    target = weights[tables.target]
    others = weights[tables.source], weights[tables.output]
    source, output = (target if _equal(each, target) else each for each in others)
    bias = weights[BIAS].reshape(-1) if BIAS in weights else 0 * target[:, 0]
    has_bias = rows is not None or family.learned and bool(bias.any())
    tied, shared = output is target, source is target
    if rows is not None:
        shared = shared and rows[0] is rows[1]
        source = source[list(rows[0])]
        output = None if tied else output[list(rows[1])]
        target = source if shared else target[list(rows[1])]
        output = target if tied else output
        bias = bias[list(rows[1])]
        bias[0] = _NEVER
    model = {
        **from_stock(layers),
        "encoder.embed_tokens.weight": source,
        "decoder.embed_tokens.weight": target,
        "decoder.output_projection.weight": output,
    }
    if has_bias:
        model["decoder.output_projection.bias"] = bias
    if family.learned:
        tables_of = {name: weights.get(f"model.{name}") for name in _POSITIONS}
        if rows is not None:
            tables_of = {name: _after_no_position(table, config) for name, table in tables_of.items()}
        model |= {name: table for name, table in tables_of.items() if table is not None}
    sides = {
        f"{side}_{ours}": value
        for side in ("encoder", "decoder")
        for ours, value in {
            "embed_dim": config.d_model,
            "ffn_embed_dim": getattr(config, f"{side}_ffn_dim"),
            "attention_heads": getattr(config, f"{side}_attention_heads"),
            "layers": getattr(config, f"{side}_layers"),
            "connection": family.connection,
            "learned_pos": family.learned,
        }.items()
    }
    settings = {
        **sides,
        "activation_fn": ACTIVATIONS[config.activation_function],
        "no_scale_embedding": not config.scale_embedding,
        "max_source_positions": config.max_position_embeddings,
        "max_target_positions": config.max_position_embeddings,
        **({"output_bias": has_bias} if family.learned else {}),
        "share_all_embeddings": tied and shared,
        "share_decoder_input_output_embed": tied,
        **family.settings,
    }
    return Checkpoint(model=model, config={"task": "translation", "arch": family.arch, "model": settings})


def _equal(one: Any, other: Any) -> bool:
    return one is other or one.shape == other.shape and bool((one == other).all())


def _after_no_position(table: Any, config: StackSettings) -> Any:
    """Marian's table of positions, or else its sines and cosines, behind our rows that are no positions."""
    if table is None:
        length, features = config.max_position_embeddings, config.d_model
        angles = np.arange(length)[:, None] / 10000 ** (np.arange(0, features, 2) / features)
        table = np.concatenate([np.sin(angles), np.cos(angles[:, : features // 2])], axis=1).astype(np.float32)
    behind = table[[*[0] * _FIRST_POSITION, *range(len(table))]]
    behind[:_FIRST_POSITION] = 0
    return behind
