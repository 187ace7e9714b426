"""Converts raw sentences to the token ids of a model, and token ids to raw sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from rskip.files.text_lines import is_blank
from rskip.text.dictionary import Dictionary
from rskip.text.pipeline import TextPipeline, TokenText

Text = TextPipeline | TokenText


class Tokenizer:
    """The text pipeline and both dictionaries of a translation model. Threads may share one.

    `encode` runs two steps, `tokens` and `ids`. A long sentence can be split between them.

    :param text: converts raw sentences to model tokens and back.
    :param source: tokens of the source language and their ids.
    :param target: tokens of the target language and their ids.
    """

    def __init__(self, text: Text, source: Dictionary, target: Dictionary) -> None:
        self.text, self.source, self.target = text, source, target

    @classmethod
    def load(cls, folder: str | Path) -> Tokenizer:
        """Reads a model folder's text/ and dict.<language>.txt.

        :raises FileNotFoundError: one of them is missing.
        :raises ValueError: a damaged file.
        """
        text = TextPipeline.load(Path(folder) / "text")
        languages = text.source_language, text.target_language
        return cls(text, *(Dictionary.load(Path(folder) / f"dict.{language}.txt") for language in languages))

    def save(self, folder: str | Path) -> None:
        """Writes the files that `load` reads; without text/ if sentences are tokens already."""
        self.text.save(Path(folder) / "text")
        for dictionary, language in ((self.source, self.source_language), (self.target, self.target_language)):
            dictionary.save(Path(folder) / f"dict.{language}.txt")

    @property
    def source_language(self) -> str:
        return self.text.source_language

    @property
    def target_language(self) -> str:
        return self.text.target_language

    def encode(self, sentence: str) -> list[int]:
        """Ids of a raw source sentence's tokens, including the end. NUL bytes count as spaces.

        A sentence without a visible character, such as one zero-width space, has no tokens.

        :raises ValueError: text of several lines, or that is not Unicode.
        """
        return self.ids(self.tokens(sentence))

    def encode_prefix(self, text: str) -> list[int]:
        """Ids of raw target text for the beginning of a translation. Raises `ValueError` as `encode` does."""
        return _known_ids(_tokens(text, self.text.encode_target), self.target)

    def decode(self, ids: Iterable[int]) -> str:
        """The raw sentence of target ids, given with or without the end."""
        return self.text.decode(self.target.decode(ids))

    def tokens(self, sentence: str) -> list[str]:
        """Model tokens of a raw source sentence, without the end. Raises `ValueError` as `encode` does."""
        return _tokens(sentence, self.text.encode)

    def ids(self, tokens: Sequence[str]) -> list[int]:
        """Ids of the model tokens of a source, including the end."""
        return [*_known_ids(tokens, self.source), Dictionary.eos_index]


def _tokens(sentence: str, encode: Callable[[str], str]) -> list[str]:
    if not isinstance(sentence, str):
        raise ValueError(f"it is no text but {sentence!r}")
    if "\n" in sentence:
        raise ValueError("it has a line feed inside: give each line as a sentence of its own")
    try:
        sentence.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(f"its character {error.start + 1} is not Unicode text: {error.reason}") from error
    return [] if is_blank(sentence) else encode(sentence.replace("\0", " ")).split()


def _known_ids(tokens: Sequence[str], dictionary: Dictionary) -> list[int]:
    """Treats tokens that look like padding, a start or an end as unknown words."""
    special = (dictionary.bos_index, dictionary.pad_index, dictionary.eos_index)
    found = map(dictionary.index, tokens)
    return [dictionary.unk_index if index in special else index for index in found]
