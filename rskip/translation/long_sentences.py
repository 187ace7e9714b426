"""What is done with sentences of more tokens than wanted: they are kept, cut or split."""

from __future__ import annotations

from collections.abc import Sequence

TOO_LONG = ("keep", "cut", "split")

_SENTENCE_ENDS = frozenset({".", "!", "?", "…", "...", "。", "！", "？", "।", "؟"})
_CLOSING = frozenset({'"', "'", ")", "]", "»", "”", "’", "“", "&quot;", "&apos;", "&#93;", "」", "』", "）"})
_MARK = "\u2581"  # SentencePiece's space


def cut(tokens: Sequence[str], room: int) -> list[list[str]]:
    """The first `room` tokens, as the only piece."""
    return [list(tokens[:room])]


def split(tokens: Sequence[str], room: int) -> list[list[str]]:
    """All tokens in pieces of at most `room`: each as long as it can be and end with a sentence, otherwise with a word.

    A sentence ends after a token of final punctuation and the quotes or brackets that close behind it; a word as
    byte-pair encoding (`@@`) or SentencePiece (`▁`) marks it. A word longer than `room` is split at any token.
    """
    sentence_ends, word_ends = _sentence_ends(tokens), _word_ends(tokens)
    pieces = []
    start = 0
    while len(tokens) - start > room:
        window = range(start + room, start, -1)
        end = next(
            (end for ends in (sentence_ends, word_ends) for end in window if end in ends),
            start + room,
        )
        pieces.append(list(tokens[start:end]))
        start = end
    return [*pieces, list(tokens[start:])]


def _sentence_ends(tokens: Sequence[str]) -> set[int]:
    """How many tokens there are up to the end of each sentence."""
    ends = set()
    ended = False
    for index, token in enumerate(tokens):
        bare = token.removeprefix(_MARK)
        if ended and bare not in _CLOSING and bare not in _SENTENCE_ENDS:
            ends.add(index)
        ended = bare in _SENTENCE_ENDS or (ended and bare in _CLOSING)
    return ends


def _word_ends(tokens: Sequence[str]) -> set[int]:
    if any(token.startswith(_MARK) for token in tokens):
        return {index for index, token in enumerate(tokens) if token.startswith(_MARK)}
    return {index for index, token in enumerate(tokens, start=1) if not token.endswith("@@")}
