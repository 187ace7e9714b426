"""Translation of raw text: sentences, files of any size, scoring; models for CTranslate2."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rskip.machine.lazy import imported_on_use
from rskip.translation.translation import SentenceError, TranslatedHypothesis, Translation

if TYPE_CHECKING:
    from rskip.translation.translator import Translator
    from rskip.translation.workers import Workers

__all__ = ["SentenceError", "TranslatedHypothesis", "Translation", "Translator", "Workers"]

__getattr__ = imported_on_use(__name__, {"Translator": "translator", "Workers": "workers"})
