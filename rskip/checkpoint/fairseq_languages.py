"""Reads the languages of fairseq's multilingual models from the settings of their tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal, TypeVar

from msgspec import Meta

from rskip.checkpoint.checkpoint import LANGUAGES, PAIRS, Checkpoint
from rskip.files.text_lines import read_lines
from rskip.settings.check import convert, to_plain
from rskip.settings.errors import SettingError, first_names, shown
from rskip.text.languages import LanguageTokens

Value = TypeVar("Value")

PER_PAIR = "multilingual_translation"  # the task of checkpoints with a model for each pair of languages
_MODELS = "models."  # begins the names of their parameters: models.de-en.encoder...
_MASK = "<mask>"
# from the branch of fairseq that trained NLLB, with --add-data-source-prefix-tags
_DATA_TAGS = ("<MINED_DATA>", "<MMT_BT_DATA>", "<SMT_BT_DATA>")
_FORMS = {"multilingual": "__{}__", "mbart": "[{}]"}
_Style: Any = Literal["multilingual", "mbart"]
_Side: Any = Literal["src", "tgt"] | None
_Pair = Annotated[str, Meta(pattern="^[^-]*-[^-]*$", extra={"expected": "pairs such as de-en, separated by commas"})]


def language_settings(task: str, settings: Mapping[str, Any], *, folder: Path) -> dict[str, Any]:
    """The keys of `Checkpoint.config` that a multilingual task adds: `languages`, and `pairs` for several models.

    :param settings: settings of the task.
    :param folder: the checkpoint's folder, which may hold the list of languages that `--lang-dict` named.
    """
    if not isinstance(task, str) or task not in _TASKS:
        return {}
    given = settings.get("lang_dict")
    if isinstance(given, str) and not settings.get("langs") and (file := folder / PurePath(given).name).is_file():
        settings = {**settings, "langs": [*read_lines(file)]}
    tokens = _TASKS[task](settings)
    added = {} if tokens is None else {LANGUAGES: to_plain(tokens)}
    return {**added, PAIRS: _pairs(settings)} if task == PER_PAIR else added


def language_tokens(config: Mapping[str, Any]) -> LanguageTokens | None:
    """The language tokens of a `Checkpoint.config`; None if it has none."""
    if config.get(LANGUAGES) is None:
        return None
    found = convert(config[LANGUAGES], LanguageTokens, name=LANGUAGES)
    if not found.codes and found.form == _FORMS["mbart"]:  # other dictionaries hold the languages' tokens
        problem = "the languages are in a file that the training named (--lang-dict), such as ML50_langs.txt"
        raise SettingError("", problem, advice="put the file next to the checkpoint")
    return found


def language_pairs(config: Mapping[str, Any]) -> list[str]:
    """The language pairs of a checkpoint with one model per pair; empty for a checkpoint with one model."""
    return convert(config.get(PAIRS, []), list[str], name=PAIRS)


def parameters_of(pair: str, model: Mapping[str, Value]) -> dict[str, Value]:
    """The parameters, or values by their names, of the model for a language pair, without the pair in their names."""
    prefix = f"{_MODELS}{pair}."
    return {name.removeprefix(prefix): value for name, value in model.items() if name.startswith(prefix)}


def of_pair(checkpoint: Checkpoint, source: str | None, target: str | None) -> Checkpoint:
    """The model for a language pair of a checkpoint with one model per pair. Other checkpoints are returned unchanged.

    :param source, target: None: the languages of the checkpoint's only pair.
    """
    pairs = language_pairs(checkpoint.config)
    if not pairs:
        return checkpoint
    fitting = [
        pair
        for pair in pairs
        if (source or pair.partition("-")[0], target or pair.partition("-")[2]) == tuple(pair.split("-"))
    ]
    if len(fitting) != 1:
        side, known = "source" if source is None else "target", first_names(pairs, listed="`rskip inspect MODEL`")
        given = source if side == "source" else target
        problem = "must be given" if given is None else f"is {shown(given)}, which the model doesn't have with {source}"
        raise SettingError(f"{side}_language", problem, expected=f"one of the pairs {known}")
    model = parameters_of(fitting[0], checkpoint.model)
    source, target = fitting[0].split("-")
    config = {name: value for name, value in checkpoint.config.items() if name != PAIRS}
    config |= {"source_lang": source, "target_lang": target}
    return replace(checkpoint, model=model, config=config)


def _many_to_many(settings: Mapping[str, Any]) -> LanguageTokens:
    """translation_multi_simple_epoch: M2M-100, NLLB, flores101, WMT21, mBART-50."""
    style = convert(settings.get("lang_tok_style") or "multilingual", _Style, name="lang_tok_style")
    form = _FORMS[style]
    encoder, decoder = settings.get("encoder_langtok"), "tgt" if settings.get("decoder_langtok") else None
    kinds = settings.get("langtoks")
    if isinstance(kinds, Mapping) and "main" in kinds:
        encoder, decoder = convert(kinds["main"], tuple[str | None, str | None], name="langtoks")
    replaces = bool(settings.get("lang_tok_replacing_bos_eos"))
    codes = _codes(settings)
    return LanguageTokens(
        codes=codes,
        form=form,
        added=(*_tokens_of(settings, form, codes), *_further_tokens(settings, style)),
        encoder=_side(encoder, "encoder_langtok"),
        encoder_place="end" if replaces else "start",
        decoder=None if _side(decoder, "decoder_langtok") is None else "start" if replaces else "first",
    )


def _from_pretrained(settings: Mapping[str, Any]) -> LanguageTokens:
    """translation_from_pretrained_bart: mBART-25."""
    if settings.get("prepend_bos"):
        problem = "is true, but rskip does not begin sentences with <s>"
        raise SettingError("prepend_bos", problem, advice="translate with fairseq-generate")
    codes = _codes(settings)
    form = _FORMS["mbart"]
    return LanguageTokens(
        codes=codes,
        form=form,
        added=(*_tokens_of({}, form, codes), _MASK),
        encoder="source",
        encoder_place="after end",
        decoder="start and end",
    )


def _per_pair(settings: Mapping[str, Any]) -> LanguageTokens | None:
    """multilingual_translation."""
    encoder, decoder = settings.get("encoder_langtok"), settings.get("decoder_langtok")
    if encoder is None and not decoder:
        return None
    codes = tuple(sorted({code for pair in _pairs(settings) for code in pair.split("-")}))
    form = _FORMS["multilingual"]
    return LanguageTokens(
        codes=codes,
        form=form,
        added=_tokens_of({}, form, codes),
        encoder=_side(encoder, "encoder_langtok"),
        encoder_place="end",
        decoder="start" if decoder else None,
    )


_TASKS: dict[str, Callable[[Mapping[str, Any]], LanguageTokens | None]] = {
    "translation_multi_simple_epoch": _many_to_many,
    "translation_from_pretrained_bart": _from_pretrained,
    PER_PAIR: _per_pair,
}
MULTILINGUAL_TASKS = tuple(_TASKS)


def _codes(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """The languages in the order of their tokens; empty if they are in a file or unknown."""
    if (codes := settings.get("langs")) or settings.get("lang_dict"):
        return _names(codes or ())
    return tuple(sorted({code for pair in _pairs(settings) for code in pair.split("-")}))


def _pairs(settings: Mapping[str, Any]) -> list[str]:
    return convert([*_names(settings.get("lang_pairs") or ())], list[_Pair], name="lang_pairs")


def _names(given: Any) -> tuple[str, ...]:
    names = given.split(",") if isinstance(given, str) else convert(given, list[str], name="langs")
    return tuple(name.strip() for name in names if name.strip())


def _tokens_of(settings: Mapping[str, Any], form: str, codes: tuple[str, ...]) -> tuple[str, ...]:
    """The tokens of the languages for each kind of data."""
    kinds = _names(settings.get("langtoks_specs") or ("main",))
    endings = ["_dae" if kind.endswith("dae") else "_mined" if kind.endswith("mined") else "" for kind in kinds]
    return tuple(form.replace("{}", code + ending) for ending in endings for code in codes)


def _further_tokens(settings: Mapping[str, Any], style: str) -> tuple[str, ...]:
    denoising = isinstance(data := settings.get("extra_data"), Mapping) and "mono_dae" in data
    mask = (_MASK,) if style == "mbart" or denoising else ()
    return (*mask, *(_DATA_TAGS if settings.get("add_data_source_prefix_tags") else ()))


def _side(kind: Any, name: str) -> Any:
    """`LanguageTokens.encoder` for fairseq's value."""
    return {None: None, "src": "source", "tgt": "target"}[convert(kind, _Side, name=name)]
