"""Raw sentences made ready for a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rskip.text import Dictionary
from rskip.translation.long_sentences import cut, split
from rskip.translation.text_files import Text


@dataclass(frozen=True)
class Source:
    """A sentence as the model gets it.

    pieces: its model tokens, in several pieces where it was split; none for a blank sentence.
    prefix: the target tokens that are forced at the beginning of the first piece.
    notes: how pieces differ from the sentence.
    """

    sentence: str
    pieces: tuple[tuple[str, ...], ...]
    prefix: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class LengthRule:
    """What is done with sentences of more than `limit` tokens, the end counted; None: no sentence is too long.

    too_long: "keep" (they are a `ValueError`), "cut" or "split".
    """

    too_long: str
    limit: int | None

    def pieces(self, tokens: Sequence[str]) -> tuple[list[list[str]], tuple[str, ...]]:
        """The tokens in pieces, and notes on what was done. Raises `ValueError` for too many tokens."""
        count = len(tokens) + 1
        if self.limit is None or count <= self.limit:
            return [list(tokens)], ()
        room = self.limit - 1
        if self.too_long == "cut":
            return cut(tokens, room), (f"cut after {room:,} of its {len(tokens):,} tokens",)
        if self.too_long == "split":
            pieces = split(tokens, room)
            return pieces, (f"split into {len(pieces)} parts, since it has {len(tokens):,} tokens",)
        raise ValueError(
            f"it has {count:,} tokens (its end counted), and at most {self.limit:,} can be translated: "
            "shorten it, or let it be cut or split (too_long)"
        )


def read_source(sentence: str, prefix: str, *, text: Text, rule: LengthRule) -> Source:
    """The sentence's model tokens, in pieces as `rule` says; NUL bytes count as spaces.

    :param prefix: raw text that its translation must begin with.
    :raises ValueError: the sentence or the prefix has several lines or is not Unicode, or the rule refuses it.
    """
    tokens = _encode(sentence, text.encode)
    try:
        forced = _encode(prefix, text.encode_target)
    except ValueError as error:
        raise ValueError(f"its prefix: {error}") from error
    if not tokens:
        return Source(sentence, ())
    pieces, notes = rule.pieces(tokens)
    return Source(sentence, tuple(map(tuple, pieces)), tuple(forced), notes)


def token_indices(tokens: Sequence[str], dictionary: Dictionary) -> list[int]:
    """The tokens' indices. A token that looks like padding, a start or an end is as unknown as any other word."""
    special = (dictionary.bos_index, dictionary.pad_index, dictionary.eos_index)
    found = map(dictionary.index, tokens)
    return [dictionary.unk_index if index in special else index for index in found]


def _encode(sentence: str, encode: Callable[[str], str]) -> list[str]:
    if not isinstance(sentence, str):
        raise ValueError(f"it is no text but {sentence!r}")
    if "\n" in sentence:
        raise ValueError("it has a line feed inside: give each line as a sentence of its own")
    try:
        sentence.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(f"its character {error.start + 1} is not Unicode text: {error.reason}") from error
    return encode(sentence.replace("\0", " ")).split()
