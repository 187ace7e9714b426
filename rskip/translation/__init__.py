"""Translation of raw text: sentences, files of any size, scoring; models for CTranslate2."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rskip.translation.translation import SentenceError, TranslatedHypothesis, Translation
    from rskip.translation.translator import Translator

__all__ = ["SentenceError", "TranslatedHypothesis", "Translation", "Translator"]

_HOMES = {
    "SentenceError": "translation",
    "TranslatedHypothesis": "translation",
    "Translation": "translation",
    "Translator": "translator",
}


def __getattr__(name: str) -> object:
    # Imported when asked for: scoring needs no torch, and torch takes a second.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
