"""Converts raw sentences to token ids and back: tokenisers, subword units, dictionaries."""

from rskip.text.dictionary import Dictionary
from rskip.text.pipeline import TextConfig, TextPipeline, TokenText
from rskip.text.tokenizer import Tokenizer

__all__ = ["Dictionary", "TextConfig", "TextPipeline", "TokenText", "Tokenizer"]
