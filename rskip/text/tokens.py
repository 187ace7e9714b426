"""Text that is model tokens already."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TokenText:
    """In the place of a `TextPipeline` where sentences are model tokens, separated by white space, and stay so."""

    source_language: str
    target_language: str

    def encode(self, sentence: str) -> str:
        """The tokens of a source sentence joined by single spaces."""
        return " ".join(sentence.split())

    def encode_target(self, sentence: str) -> str:
        """The tokens of a target sentence joined by single spaces."""
        return " ".join(sentence.split())

    def decode(self, tokens: str) -> str:
        """The tokens as they are."""
        return tokens
