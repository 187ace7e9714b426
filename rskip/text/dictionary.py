"""Reads and writes fairseq's dictionary files, which map tokens to indices."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

from rskip.files.text_lines import read_lines
from rskip.files.whole import atomic_file

BOS, PAD, EOS, UNK = "<s>", "<pad>", "</s>", "<unk>"
OVERWRITE = " #fairseq:overwrite"
_COUNT = re.compile(r"\s*[+-]?\d+(_\d+)*")  # as `int` reads it


class Dictionary:
    """Tokens and their indices, which equal those of `fairseq.data.Dictionary`.

    The four special tokens come first, then the file's lines in order, including padding lines (`madeupword0000 0`). An
    index is a row of the model's embedding.

    :param tokens: the tokens after the special ones. A repeated token gets its last index.
    """

    bos_index, pad_index, eos_index, unk_index = range(4)

    def __init__(self, tokens: Iterable[str] = ()) -> None:
        self.tokens = [BOS, PAD, EOS, UNK, *tokens]
        self._indices = {token: index for index, token in enumerate(self.tokens)}

    @classmethod
    def load(cls, path: str | Path) -> Dictionary:
        """Reads `dict.<language>.txt` like fairseq: a token, a space, its count, and possibly #fairseq:overwrite.

        A count is any text that `int` accepts, such as the negative ids of a SentencePiece vocabulary.

        :raises FileNotFoundError: the file does not exist.
        :raises ValueError: a line has another form, or a token appears twice without the flag.
        """
        path = Path(path)
        tokens: list[str] = []
        seen = {BOS, PAD, EOS, UNK}
        for number, text in enumerate(read_lines(path), start=1):
            token, space, count = text.rpartition(" ")
            overwrite = False
            if not (space and count.isdecimal()):  # a rarer form
                line = text.rstrip()
                overwrite = line.endswith(OVERWRITE)
                token, space, count = line.removesuffix(OVERWRITE).rpartition(" ")
                if not space or not _COUNT.fullmatch(count):
                    raise ValueError(f"{path}: line {number} is not a token, a space and its count: {line!r}")
            if token in seen and not overwrite:
                raise ValueError(f"{path}: line {number} has the token {token!r} a second time")
            seen.add(token)
            tokens.append(token)
        return cls(tokens)

    def save(self, path: str | Path) -> None:
        """Writes the dictionary for `load`. All counts are 1, since a dictionary does not store them."""
        seen = {BOS, PAD, EOS, UNK}
        with atomic_file(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
            for token in self.tokens[len(seen) :]:
                file.write(f"{token} 1{OVERWRITE if token in seen else ''}\n")
                seen.add(token)

    def extended(self, tokens: Iterable[str]) -> Dictionary:
        """A dictionary with the missing ones of these tokens at its end, or itself if none is missing."""
        missing = [token for token in dict.fromkeys(tokens) if token not in self]
        return Dictionary([*self.tokens[self.unk_index + 1 :], *missing]) if missing else self

    @property
    def sha256(self) -> str:
        """Hexadecimal SHA-256 of the tokens in order."""
        return hashlib.sha256("\n".join(self.tokens).encode("utf-8")).hexdigest()

    def __len__(self) -> int:
        return len(self.tokens)

    def __contains__(self, token: str) -> bool:
        return token in self._indices

    def index(self, token: str) -> int:
        """The index of a token, or that of `<unk>` for an unknown one."""
        return self._indices.get(token, self.unk_index)

    def encode_line(self, line: str) -> list[int]:
        """The indices of a line's tokens, which are separated by white space, and of the end symbol."""
        return [*map(self.index, line.split()), self.eos_index]

    def decode(self, indices: Iterable[int]) -> str:
        """The tokens joined by single spaces, without `<s>`, `</s>` and `<pad>`."""
        hidden = (self.bos_index, self.pad_index, self.eos_index)
        return " ".join(self.tokens[index] for index in indices if index not in hidden)
