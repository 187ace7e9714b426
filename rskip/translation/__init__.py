"""Translation of raw text: sentences, files of any size, scoring; models for CTranslate2."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from rskip.translation.translation import SentenceError, TranslatedHypothesis, Translation

if TYPE_CHECKING:
    from rskip.translation.translator import Translator
    from rskip.translation.workers import Workers

__all__ = ["SentenceError", "TranslatedHypothesis", "Translation", "Translator", "Workers"]

_HOMES = {"Translator": "translator", "Workers": "workers"}


def __getattr__(name: str) -> object:
    # Imported when asked for: scoring and command-line flags need no torch, which takes a second.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
