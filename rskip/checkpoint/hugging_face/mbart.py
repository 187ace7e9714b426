"""Reads the folders of Hugging Face's MBartForConditionalGeneration: mBART-50, and fine-tuned mBART-25.

The model is a pre-norm Transformer of ours, with learned positions and normalised embeddings.
"""

from __future__ import annotations

from rskip.checkpoint.checkpoint import Checkpoint
from rskip.checkpoint.hugging_face.folder import Folder
from rskip.checkpoint.hugging_face.multilingual import Languages, read_multilingual
from rskip.checkpoint.hugging_face.readers import HuggingFaceModel
from rskip.checkpoint.hugging_face.stacks import (
    BIAS,
    StackSettings,
    check_fairseq_order,
    check_rows,
    read_settings,
    shared_tables,
    stack_settings,
    stack_weights,
)
from rskip.checkpoint.hugging_face.tokens import TOKENIZER, read_optional
from rskip.checkpoint.stock import PRENORM
from rskip.settings.errors import SettingError
from rskip.text.languages import LanguageTokens

_USUAL = (
    "ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT lv_LV my_MM ne_NP nl_XX "
    "ro_RO ru_RU si_LK tr_TR vi_VN zh_CN af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN mn_MN mr_IN "
    "pl_PL ps_AF pt_XX sv_SE sw_KE ta_IN te_IN th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI"
)
_PATTERN = r"[a-z]{2,3}_[A-Z]{2}"
_MBART50 = Languages(
    LanguageTokens(form="{}", encoder="source", decoder="first", shows_others=False), _PATTERN, _USUAL.split()
)
# a target begins and ends with its language's token, as in fairseq
_MBART25 = Languages(
    LanguageTokens(form="{}", encoder="source", encoder_place="after end", decoder="start and end", shows_others=False),
    _PATTERN,
    _USUAL.split()[:25],
    drops_spaces=True,
)


class MBartSettings(StackSettings, kw_only=True):
    """What config.json says of the model; the defaults are those of transformers."""

    vocab_size: int = 50265
    activation_function: str = "gelu"
    scale_embedding: bool = False
    decoder_start_token_id: int | None = None
    tokenizer_class: str = ""


def read(folder: Folder, *, languages: tuple[str | None, str | None]) -> HuggingFaceModel:
    """The model of an mBART folder. See `Reader`."""
    config = read_settings(folder, MBartSettings)
    is_mbart50 = _is_mbart50(config, folder)
    check_fairseq_order(config, folder, start=config.decoder_start_token_id if is_mbart50 else None)
    weights = folder.tensors()
    tables = shared_tables(weights, config, folder)
    check_rows("vocab_size", config.vocab_size, tables.target, folder)
    found = read_multilingual(folder, _MBART50 if is_mbart50 else _MBART25, size=len(tables.target))
    model = {**stack_weights(weights), **tables.weights()}
    for side in ("encoder", "decoder"):
        name = f"{side}.embed_positions.weight"
        if f"model.{name}" not in weights:
            raise SettingError("", f"the weights have no model.{name}", source=str(folder.path))
        model[name] = weights[f"model.{name}"]
    has_bias = BIAS in weights and bool(weights[BIAS].any())
    if has_bias:
        model["decoder.output_projection.bias"] = weights[BIAS].flatten()
    settings = stack_settings(
        config,
        connection=PRENORM,
        learned_positions=True,
        layernorm_embedding=True,
        output_bias=has_bias,
        **tables.settings(),
    )
    return HuggingFaceModel(
        checkpoint=Checkpoint(
            model=model,
            config={"task": "translation", "arch": "mbart50" if is_mbart50 else "mbart", "model": settings},
        ),
        text=found.text,
        source=found.dictionary,
        target=found.dictionary,
        pair=languages,
        languages=found.tokens,
    )


def _is_mbart50(config: MBartSettings, folder: Folder) -> bool:
    """As the tokenizer's class says, or else: decoding starts from the end token."""
    kind = read_optional(folder, TOKENIZER).get("tokenizer_class") or config.tokenizer_class
    if isinstance(kind, str) and kind.startswith("MBart"):
        return kind.startswith("MBart50")
    return config.decoder_start_token_id == config.eos_token_id
