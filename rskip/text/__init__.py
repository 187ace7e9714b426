"""Raw sentences and model tokens: tokenisers, subword units, dictionaries."""

from rskip.text.dictionary import Dictionary
from rskip.text.pipeline import TextConfig, TextPipeline, TokenText

__all__ = ["Dictionary", "TextConfig", "TextPipeline", "TokenText"]
