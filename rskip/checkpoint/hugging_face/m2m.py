"""Reads the folders of Hugging Face's M2M100ForConditionalGeneration: M2M-100, WMT21, and NLLB without experts.

The model is a pre-norm Transformer of ours, with fairseq's sinusoidal positions and order of special tokens.
"""

from __future__ import annotations

from dataclasses import replace

from rskip.checkpoint.checkpoint import Checkpoint
from rskip.checkpoint.hugging_face.folder import Folder
from rskip.checkpoint.hugging_face.multilingual import Languages, read_multilingual
from rskip.checkpoint.hugging_face.readers import HuggingFaceModel
from rskip.checkpoint.hugging_face.stacks import (
    StackSettings,
    check_fairseq_order,
    check_rows,
    read_settings,
    shared_tables,
    stack_settings,
    stack_weights,
)
from rskip.checkpoint.hugging_face.tokens import TOKENIZER, read_optional, token_numbers
from rskip.checkpoint.stock import PRENORM
from rskip.settings.errors import SettingError
from rskip.text.languages import LanguageTokens

VOCABULARY = "vocab.json"
# `language_codes` of tokenizer_config.json: the languages in the order of their rows, for folders that don't list them
_USUAL = {
    "m2m100": (
        "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi hr ht hu "
        "hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or pa pl ps pt "
        "ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu"
    ),
    "wmt21": "en ha is ja cs ru zh de",
}
_M2M = Languages(
    LanguageTokens(form="__{}__", encoder="source", decoder="first", shows_others=False),
    r"[a-z]{2,3}(?:[_-]\w+)?",
    drops_spaces=True,
)
_NLLB = Languages(
    LanguageTokens(form="{}", encoder="source", decoder="first", shows_others=False), r"[a-z]{3}_[A-Z][a-z]{3}"
)
_LEGACY_NLLB = _NLLB._replace(tokens=replace(_NLLB.tokens, encoder_place="after end"))


class M2MSettings(StackSettings, kw_only=True):
    """What config.json says of the model."""

    vocab_size: int = 128112
    decoder_start_token_id: int = 2


def read(folder: Folder, *, languages: tuple[str | None, str | None]) -> HuggingFaceModel:
    """The model of an M2M-100 or NLLB folder. See `Reader`."""
    config = read_settings(folder, M2MSettings)
    check_fairseq_order(config, folder, start=config.decoder_start_token_id)
    weights = folder.tensors()
    tables = shared_tables(weights, config, folder)
    check_rows("vocab_size", config.vocab_size, tables.target, folder)
    about = read_optional(folder, TOKENIZER)
    kind_of_tokenizer = str(about.get("tokenizer_class"))
    is_nllb = kind_of_tokenizer.startswith("Nllb") or not (
        kind_of_tokenizer.startswith("M2M100") or folder.has(VOCABULARY)
    )
    vocabulary = None
    if is_nllb:
        kind = _LEGACY_NLLB if about.get("legacy_behaviour") else _NLLB
    else:
        usual = about.get("language_codes") or "m2m100"
        if usual not in _USUAL:
            source = str(folder.path / TOKENIZER)
            raise SettingError.of_value("language_codes", usual, f"one of {', '.join(_USUAL)}", source=source)
        kind = _M2M._replace(usual=_USUAL[usual].split())
        content = folder.read_object(VOCABULARY)
        vocabulary = token_numbers(content, source=str(folder.path / VOCABULARY))
    found = read_multilingual(folder, kind, size=len(tables.target), vocabulary=vocabulary)
    return HuggingFaceModel(
        checkpoint=Checkpoint(
            model={**stack_weights(weights), **tables.weights()},
            config={
                "task": "translation",
                "arch": "nllb" if is_nllb else "m2m_100",
                "model": stack_settings(config, connection=PRENORM, learned_positions=False, **tables.settings()),
            },
        ),
        text=found.text,
        source=found.dictionary,
        target=found.dictionary,
        pair=languages,
        languages=found.tokens,
    )
