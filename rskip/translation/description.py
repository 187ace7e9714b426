"""Describes a translation model from its files, without building the model."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Any

from rskip.checkpoint.fairseq_languages import language_pairs, language_tokens
from rskip.text import TextPipeline
from rskip.text.finding import TokenizerSettings, described, find_languages_of
from rskip.text.languages import LanguageTokens
from rskip.translation.model_files import StoredEnsemble, StoredGraphs, StoredWeights, open_model

Description = dict[str, Any]


def describe_model(path: str | os.PathLike[str], *, dictionaries: str | os.PathLike[str] | None = None) -> Description:
    """Plain values for JSON: files, architecture, sizes, languages and the text pipeline.

    For an ensemble, `models` has one description per model.
    """
    stored = open_model(path)
    if isinstance(stored, StoredEnsemble):
        return {"models": [_describe(each, dictionaries) for each in stored.models]}
    return _describe(stored, dictionaries)


def model_lines(description: Description) -> list[str]:
    """The description as lines of text."""
    models = description.get("models", [description])
    lines = [f"ensemble of {len(models)} models"] if len(models) > 1 else []
    for model in models:
        lines += [f"{name:<13} {_in_words(value)}" for name, value in model.items() if value not in (None, [], {})]
    return lines


def _in_words(value: Any) -> str:
    if isinstance(value, list):
        return f"{len(value)}: {', '.join(value)}"
    if isinstance(value, dict):
        return ", ".join(f"{name} {number:,}" for name, number in value.items())
    return f"{value:,}" if isinstance(value, int) else str(value)


def _describe(stored: StoredWeights | StoredGraphs, dictionaries: str | os.PathLike[str] | None) -> Description:
    if isinstance(stored, StoredGraphs):
        of = stored.settings
        languages = {"source": of.source_language, "target": of.target_language}
        return {"file": str(stored.file), **languages, "precision": of.precision}
    config = stored.config
    tokens = language_tokens(config)
    if tokens is not None and not tokens.codes:
        tokens = find_languages_of(tokens, stored.file, dictionaries)
    model = config["model"]
    sizes = {
        f"{side} {what}": model[f"{side}_{name}"]
        for side in ("encoder", "decoder")
        for what, name in {"layers": "layers", "features": "embed_dim", "heads": "attention_heads"}.items()
        if isinstance(model.get(f"{side}_{name}"), int)
    }
    return {
        "file": str(stored.file),
        "task": config["task"],
        "architecture": config["arch"],
        "sizes": sizes,
        "parameters": stored.parameters,
        "source": config["source_lang"],
        "target": config["target_lang"],
        "languages": [] if tokens is None else sorted(tokens.codes),
        "tokens": None if tokens is None else f"such as {tokens.token(min(tokens.codes, default='LANGUAGE'))}",
        "pairs": language_pairs(config),
        "text": _text(stored, tokens, (config["source_lang"], config["target_lang"]), dictionaries),
    }


def _text(
    stored: StoredWeights,
    tokens: LanguageTokens | None,
    own: tuple[str | None, str | None],
    dictionaries: str | os.PathLike[str] | None,
) -> str:
    """The steps of the text pipeline, or the reason why there is none."""
    languages: tuple[str | None, str | None] = (None, None)
    if tokens is not None:
        others = [code for code in tokens.codes if code not in own]
        source, target = (name or (others.pop(0) if others else None) for name in own)
        languages = source, target
    if pairs := language_pairs(stored.config):
        languages = pairs[0].partition("-")[::2]
    try:
        found = stored.tokenizer(TokenizerSettings(dictionaries=dictionaries, languages=languages)).text
    except (ValueError, FileNotFoundError) as error:
        return f"not found: {error}"
    if not isinstance(found, TextPipeline):
        return "tokens"
    return f"{described(found.config)}, {asdict(found.config)['subwords']}"
