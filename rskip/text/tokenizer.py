"""Converts raw sentences to the token ids of a model, and token ids to raw sentences."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from rskip.files.text_lines import is_blank
from rskip.settings.check import convert
from rskip.settings.errors import SettingError, shown
from rskip.settings.text import read_json
from rskip.text.dictionary import Dictionary
from rskip.text.languages import LanguageTokens, PairTokens
from rskip.text.pipeline import TextPipeline, TokenText

Text = TextPipeline | TokenText
SHARED = "dict.txt"  # the dictionary of all languages
_LANGUAGE_TOKEN = re.compile(r"\s*(>>[\w-]+<<)\s*")


class Tokenizer:
    """The text pipeline and both dictionaries of a translation model. Threads may share one.

    `encode` runs two steps, `tokens` and `ids`. A long sentence can be split between them.

    :param text: converts raw sentences to model tokens and back.
    :param source: tokens of the source language and their ids.
    :param target: tokens of the target language and their ids.
    :param languages: the language tokens of a multilingual model. `ids` adds them to every source.
    :raises SettingError: the model lacks a language.

    pair: the ids of the language tokens for the text's two languages.
    """

    def __init__(
        self, text: Text, source: Dictionary, target: Dictionary, languages: LanguageTokens | None = None
    ) -> None:
        self.text, self.source, self.target, self.languages = text, source, target, languages
        self.pair = PairTokens()
        if languages is not None:
            self.pair = languages.of_pair(text.source_language, text.target_language, source, target)

    @classmethod
    def load(cls, folder: str | Path) -> Tokenizer:
        """Reads a model folder's text/, dict.<language>.txt or dict.txt, and for a multilingual model config.json.

        :raises FileNotFoundError: a file is missing.
        :raises ValueError: a file is damaged.
        """
        folder = Path(folder)
        text = TextPipeline.load(folder / "text")
        is_shared, config = (folder / SHARED).is_file(), folder / "config.json"
        names = [SHARED if is_shared else f"dict.{name}.txt" for name in (text.source_language, text.target_language)]
        read = {name: Dictionary.load(folder / name) for name in names}
        content = read_json(config) if config.is_file() else {}
        given = content.get("languages") if isinstance(content, dict) else None
        tokens = None if given is None else convert(given, LanguageTokens, name="languages", source=str(config))
        return cls(text, read[names[0]], read[names[1]], tokens)

    def save(self, folder: str | Path) -> None:
        """Writes the files for `load` except config.json, and without text/ if sentences are tokens already."""
        self.text.save(Path(folder) / "text")
        if self.languages is not None and self.source is self.target:
            self.source.save(Path(folder) / SHARED)
            return
        for dictionary, language in ((self.source, self.source_language), (self.target, self.target_language)):
            dictionary.save(Path(folder) / f"dict.{language}.txt")

    def between(self, source_language: str | None, target_language: str | None) -> Tokenizer:
        """The same tokenizer for other languages of a multilingual model. None: the current language.

        :raises SettingError: the model lacks a language, or both are the same.
        """
        source, target = source_language or self.source_language, target_language or self.target_language
        if self.languages is not None:
            source, target = self.languages.check_pair(source, target)
        if (source, target) == (self.source_language, self.target_language):
            return self
        if self.languages is None:
            side, given = ("target", target) if source == self.source_language else ("source", source)
            own = f"{self.source_language} to {self.target_language}"
            raise SettingError(f"{side}_language", f"is {shown(given)}, but the model translates only {own}")
        text = self.text.changed(source_language=source, target_language=target)
        return Tokenizer(text, self.source, self.target, self.languages)

    @property
    def dictionaries_sha256(self) -> str:
        """Hexadecimal SHA-256 of both dictionaries."""
        return hashlib.sha256(f"{self.source.sha256} {self.target.sha256}".encode()).hexdigest()

    @property
    def source_language(self) -> str:
        return self.text.source_language

    @property
    def target_language(self) -> str:
        return self.text.target_language

    @property
    def typed_languages(self) -> list[str]:
        """The language tokens of which each source must begin with one, if the text has to say it."""
        known = self.languages
        if known is None or known.encoder != "target" or self.target_language not in known.unmarked:
            return []
        possible = [known.token(code) for code in known.codes]
        return possible if len(possible) > 1 else []

    def language_prefix(self, sentence: str) -> tuple[list[str], str]:
        """The language tokens that a sentence begins with, such as >>deu<<, and the rest, for a model that needs one.

        Models whose tokens have another form read them as text.
        """
        found, known = list[str](), self.languages
        if known is not None and known.form == ">>{}<<" and (self.pair.before or self.typed_languages):
            tokens = {*map(known.token, known.codes)}
            while (match := _LANGUAGE_TOKEN.match(sentence)) and match[1] in tokens:
                found.append(match[1])
                sentence = sentence[match.end() :]
        return found, sentence

    def encode(self, sentence: str) -> list[int]:
        """The ids of a raw source sentence's tokens, including the end. NUL bytes count as spaces.

        A sentence without a visible character, such as a zero-width space, has no tokens.

        :raises ValueError: the text has several lines or is not Unicode.
        """
        return self.ids(self.tokens(sentence))

    def encode_prefix(self, text: str) -> list[int]:
        """The ids of raw target text for the beginning of a translation. Raises `ValueError` like `encode`."""
        return _known_ids(_tokens(text, self.text.encode_target, self.text.separator), self.target)

    def decode(self, ids: Iterable[int]) -> str:
        """The raw sentence of target ids, which may include the end and languages' tokens."""
        return self.text.decode(self.target.decode(index for index in ids if index not in self.pair.hidden))

    def tokens(self, sentence: str) -> list[str]:
        """The model tokens of a raw source sentence, without the end. Raises `ValueError` like `encode`."""
        return _tokens(sentence, self.text.encode, self.text.separator)

    def ids(self, tokens: Sequence[str]) -> list[int]:
        """The ids of a source's model tokens, including the end and the language tokens."""
        return self.pair.source_ids(_known_ids(tokens, self.source))


def _tokens(sentence: str, encode: Callable[[str], str], separator: str | None) -> list[str]:
    sentence.encode()  # raises ValueError for lone surrogates
    if "\n" in sentence:
        raise ValueError("it has a line feed inside: give each line as a separate sentence")
    if is_blank(sentence):
        return []
    return [token for token in encode(sentence.replace("\0", " ")).split(separator) if token]


def _known_ids(tokens: Sequence[str], dictionary: Dictionary) -> list[int]:
    """Treats tokens that look like padding, a start or an end as unknown words."""
    special = (dictionary.bos_index, dictionary.pad_index, dictionary.eos_index)
    found = map(dictionary.index, tokens)
    return [dictionary.unk_index if index in special else index for index in found]
