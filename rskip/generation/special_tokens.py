"""The tokens of a dictionary that a search handles specially."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class _Dictionary(Protocol):
    pad_index: int
    eos_index: int
    unk_index: int


@dataclass(frozen=True)
class SpecialTokens:
    """Indices of the special tokens. The defaults are those of rskip's and fairseq's dictionaries.

    :param start: the token before the first; None: the end, as in fairseq.
    """

    padding: int = 1
    end: int = 2
    unknown: int = 3
    start: int | None = None

    @classmethod
    def of(cls, dictionary: _Dictionary, *, start: int | None = None) -> SpecialTokens:
        """The special tokens of a dictionary, rskip's or fairseq's."""
        return cls(dictionary.pad_index, dictionary.eos_index, dictionary.unk_index, start)
