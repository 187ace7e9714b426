"""Translation of raw text: sentences, files of any size, scoring; models for CTranslate2."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rskip.translation.translation import SentenceError, TranslatedHypothesis, Translation

if TYPE_CHECKING:
    from rskip.translation.translator import Translator

__all__ = ["SentenceError", "TranslatedHypothesis", "Translation", "Translator"]


def __getattr__(name: str) -> object:
    # Imported when asked for: scoring and command-line flags need no torch, which takes a second.
    if name == "Translator":
        from rskip.translation.translator import Translator

        return Translator
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
