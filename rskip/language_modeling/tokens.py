"""Text as tokens: characters, or SentencePiece's units. The end of a line is the dictionary's end symbol, `</s>`.

So fairseq reads the same tokens from the same files, and the dictionary's four special tokens come first, as in every
dictionary of rskip and fairseq.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

from rskip.files.names import line_name
from rskip.settings.errors import SettingError, shown
from rskip.settings.text import read_json
from rskip.text.dictionary import Dictionary
from rskip.text.subwords import SentencePieceBytes

Kind = Literal["characters", "subwords"]
DICTIONARY, SETTINGS = "dict.txt", "tokens.json"
SPACE = "\u2581"  # a space in the dictionary, whose tokens can't contain white space
_ESCAPED = re.compile(r"<U\+([0-9A-F]{4,5}|10[0-9A-F]{4})>")


class Units(Protocol):
    """Splits a line of text, without its end, into the tokens of a dictionary, and joins them."""

    def split(self, line: str) -> list[str]: ...

    def join(self, tokens: Iterable[str]) -> str: ...

    def files(self) -> dict[str, bytes]: ...


class Characters:
    """Each character is a token. A space is `▁`, and other white space is `<U+0009>` and the like."""

    def split(self, line: str) -> list[str]:
        return [_escaped(character) for character in line]

    def join(self, tokens: Iterable[str]) -> str:
        return "".join(map(_unescaped, tokens))

    def files(self) -> dict[str, bytes]:
        return {}


class Pieces:
    """SentencePiece's units, with bytes for unknown characters."""

    def __init__(self, pieces: SentencePieceBytes) -> None:
        self._pieces = pieces

    def split(self, line: str) -> list[str]:
        return self._pieces.segment(line).split()

    def join(self, tokens: Iterable[str]) -> str:
        return self._pieces.join(" ".join(tokens))

    def files(self) -> dict[str, bytes]:
        return self._pieces.files()


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

    :param kind: "characters" or "subwords".
    """

    def __init__(self, kind: Kind, units: Units, dictionary: Dictionary) -> None:
        self.kind, self.units, self.dictionary = kind, units, dictionary

    @classmethod
    def learn(cls, kind: Kind, text: str, *, size: int) -> TextTokens:
        """Learns the tokens of a training text.

        :param text: the text, with line feeds.
        :param size: number of subword units; ignored for characters.
        """
        lines = text.split("\n")
        if kind == "characters":
            known = sorted({character for line in lines for character in line})
            return cls(kind, Characters(), Dictionary(map(_escaped, known)))
        pieces: Any = SentencePieceBytes.learn((line for line in lines if line.strip()), size=size)
        return cls(kind, Pieces(pieces), Dictionary(pieces.units()))

    @classmethod
    def load(cls, folder: Path) -> TextTokens:
        """Reads the tokens of a data folder or a published model.

        :raises FileNotFoundError: a file is missing.
        :raises SettingError: tokens.json has another content.
        """
        path = folder / SETTINGS
        if not path.is_file():
            raise FileNotFoundError(f"{line_name(path)} is missing: expected the tokens of a language model")
        content = read_json(path)
        kind = content.get("tokens") if isinstance(content, Mapping) else None
        dictionary = Dictionary.load(folder / DICTIONARY)
        if kind == "characters":
            return cls("characters", Characters(), dictionary)
        if kind == "subwords":
            pieces: Any = SentencePieceBytes.load(folder / SentencePieceBytes.file_name)
            return cls("subwords", Pieces(pieces), dictionary)
        raise SettingError.of_value("tokens", kind, "characters or subwords", source=str(path))

    def files(self) -> dict[str, bytes]:
        """The content of each file that `load` reads, except the dictionary's."""
        return {SETTINGS: f'{{"tokens": "{self.kind}"}}\n'.encode(), **self.units.files()}

    def save(self, folder: Path) -> None:
        """Writes the files that `load` reads."""
        self.dictionary.save(folder / DICTIONARY)
        for name, content in self.files().items():
            (folder / name).write_bytes(content)

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
            indices += [self.dictionary.index(token) for token in self.units.split(line)]
        if self.kind == "characters" and self.dictionary.unk_index in indices:
            unknown = text[indices.index(self.dictionary.unk_index)]
            characters = self.units.join(self.dictionary.tokens[4:])
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
        return "\n".join(map(self.units.join, lines))
