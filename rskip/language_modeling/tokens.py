"""Text as tokens: characters, or SentencePiece's units. The end of a line is the dictionary's end symbol, `</s>`.

So fairseq reads the same tokens from the same files, and the dictionary's four special tokens come first, as in every
dictionary of rskip and fairseq.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import msgspec

from rskip.files.names import line_name
from rskip.settings.check import convert
from rskip.settings.errors import shown
from rskip.settings.text import read_json
from rskip.text.dictionary import Dictionary
from rskip.text.subwords import SentencePieceBytes

Kind = Literal["characters", "subwords"]
DICTIONARY, SETTINGS = "dict.txt", "tokens.json"
SPACE = "\u2581"  # a space in the dictionary, whose tokens can't contain white space
_OTHER_SPACE = re.compile(r"[^\S ]")
_ESCAPED = re.compile(r"<U\+([0-9A-F]{4,5}|10[0-9A-F]{4})>")


class _Settings(msgspec.Struct):
    """The content of tokens.json."""

    tokens: Kind


def _escaped(character: str) -> str:
    if character == " ":
        return SPACE
    if character.isspace() or not character.isprintable() or character == SPACE:
        return f"<U+{ord(character):04X}>"
    return character


def _unescaped(token: str) -> str:
    if token == SPACE:
        return " "
    match = _ESCAPED.fullmatch(token)
    return chr(int(match[1], 16)) if match else token


class TextTokens:
    """Converts text to tokens of a dictionary and back.

    A character is a token by itself. A space is `▁`, and other white space is `<U+0009>` and the like.

    :param pieces: SentencePiece's units, with bytes for unknown characters; None: characters.
    """

    def __init__(self, dictionary: Dictionary, pieces: SentencePieceBytes | None = None) -> None:
        self.dictionary, self._pieces = dictionary, pieces
        self.kind: Kind = "characters" if pieces is None else "subwords"

    @classmethod
    def learn(cls, kind: Kind, text: str, *, size: int) -> TextTokens:
        """Learns the tokens of a training text.

        :param text: the text, with line feeds.
        :param size: number of subword units; ignored for characters.
        """
        lines = text.split("\n")
        if kind == "characters":
            return cls(Dictionary(map(_escaped, sorted({character for line in lines for character in line}))))
        # no unit has white space other than spaces, which `_split` would lose: bytes stand for it
        learnt = (_OTHER_SPACE.sub(" ", line) for line in lines if line.strip())
        pieces: Any = SentencePieceBytes.learn(learnt, size=size)
        return cls(Dictionary(pieces.units()), pieces)

    @classmethod
    def load(cls, folder: Path) -> TextTokens:
        """Reads the tokens of a data folder or a published model.

        :raises FileNotFoundError: a file is missing.
        :raises SettingError: tokens.json has another content.
        """
        path = folder / SETTINGS
        if not path.is_file():
            raise FileNotFoundError(f"{line_name(path)} is missing: expected the tokens of a language model")
        kind = convert(read_json(path), _Settings, source=str(path)).tokens
        pieces: Any = None
        if kind == "subwords":
            pieces = SentencePieceBytes.load(folder / SentencePieceBytes.file_name)
        return cls(Dictionary.load(folder / DICTIONARY), pieces)

    def save(self, folder: Path) -> None:
        """Writes the files that `load` reads."""
        self.dictionary.save(folder / DICTIONARY)
        (folder / SETTINGS).write_text(f'{{"tokens": "{self.kind}"}}\n')
        for name, content in (self._pieces.files() if self._pieces else {}).items():
            (folder / name).write_bytes(content)

    def _split(self, line: str) -> list[str]:
        return list(map(_escaped, line)) if self._pieces is None else self._pieces.segment(line).split()

    def _join(self, tokens: Iterable[str]) -> str:
        return "".join(map(_unescaped, tokens)) if self._pieces is None else self._pieces.join(" ".join(tokens))

    @property
    def unit(self) -> str:
        """The word for one token: "character" or "token"."""
        return "character" if self.kind == "characters" else "token"

    def encode(self, text: str, *, source: str = "the text") -> list[int]:
        """The indices of a text's tokens. A line feed is `</s>`.

        :param source: the text's name in the error.
        :raises ValueError: a character is not in the dictionary.
        """
        indices: list[int] = []
        for number, line in enumerate(text.split("\n")):
            indices += [self.dictionary.eos_index] * (number > 0)
            indices += [self.dictionary.index(token) for token in self._split(line)]
        if self.kind == "characters" and self.dictionary.unk_index in indices:
            unknown = text[indices.index(self.dictionary.unk_index)]
            characters = self._join(self.dictionary.tokens[4:])
            known = characters.replace(" ", "")
            blanks = "line ends" if known == characters else "line ends, spaces"
            raise ValueError(
                f"{source} has the character {shown(unknown)}, which the model doesn't know: expected {blanks} and "
                f"{known if len(known) <= 100 else known[:100] + '...'}"
            )
        return indices

    def decode(self, indices: Iterable[int]) -> str:
        """The text of tokens. Other special tokens than `</s>` are left out."""
        lines: list[list[str]] = [[]]
        for index in indices:
            if index == self.dictionary.eos_index:
                lines.append([])
            elif index not in (self.dictionary.bos_index, self.dictionary.pad_index):
                lines[-1].append(self.dictionary.tokens[index])
        return "\n".join(map(self._join, lines))
