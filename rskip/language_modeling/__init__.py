"""Language models: a text's tokens, training, evaluation, and generation of text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rskip.machine.lazy import imported_on_use

if TYPE_CHECKING:
    from rskip.language_modeling.evaluation import TextScore
    from rskip.language_modeling.generator import GenerationOptions, TextGenerator

__all__ = ["GenerationOptions", "TextGenerator", "TextScore"]

__getattr__ = imported_on_use(__name__, dict.fromkeys(__all__, "generator"))
