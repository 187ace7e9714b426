"""Converts raw sentences to model tokens and back, with the steps of the corpus's preparation."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from rskip.files.whole import atomic_file
from rskip.machine.environment import installed_version
from rskip.settings.check import Checked, convert
from rskip.settings.kinds import Language
from rskip.settings.text import read_json
from rskip.text.added import AddedToken, AddedTokens
from rskip.text.subwords import ForeignKind, MarianPieces, SubwordKind, Subwords, WholePieces, load_subwords
from rskip.text.words import TokeniserKind, build_normaliser, build_tokeniser

CONFIG_FILE = "pipeline.json"
RAW: dict[str, Any] = {"normalise_punctuation": False, "dash_splits": False, "escape": False}
"""The steps of a SentencePiece model that takes raw text, besides its `tokeniser`."""


@dataclass(frozen=True, kw_only=True)
class TextConfig(Checked):
    """The steps of a text pipeline: normalise punctuation, tokenise, lowercase, segment into subword units.

    :param source_language: two-letter code.
    :param target_language: two-letter code.
    :param normalise_punctuation: replace typographic quotes, dashes and spaces by plain ones first; "scripts": make all
        replacements of Moses' scripts.
    :param lowercase: lowercase the words. Translations have the model's case.
    :param dash_splits: Moses' aggressive dash splitting, which fairseq uses by default.
    :param escape: Moses' XML escapes, which fairseq uses by default.
    :param versions: versions of the packages that learnt the units, for the record.
    :param added_tokens: tokens that stay whole. Text is split at them before the other steps.
    :raises SettingError: a value is not possible.
    """

    source_language: Language
    target_language: Language
    normalise_punctuation: bool | Literal["scripts"] = True
    tokeniser: TokeniserKind | Literal["raw"] = "moses"
    lowercase: bool = False
    dash_splits: bool = True
    escape: bool = True
    subwords: SubwordKind | ForeignKind = "bpe"
    versions: dict[str, str] = field(default_factory=dict)
    added_tokens: tuple[AddedToken, ...] = ()


class LanguageText:
    """The steps of one language: raw sentence to words (normalised, tokenised, lowercased) and back."""

    def __init__(self, config: TextConfig, language: str) -> None:
        self._normalise = build_normaliser(config.normalise_punctuation, language)
        self._tokeniser = build_tokeniser(
            config.tokeniser, language, dash_splits=config.dash_splits, escape=config.escape
        )
        self._lowercase = config.lowercase

    def words(self, sentence: str) -> str:
        """The words of a raw sentence, joined by single spaces."""
        words = self._tokeniser.tokenise(self._normalise(sentence))
        return words.lower() if self._lowercase else words

    def sentence(self, words: str) -> str:
        """The raw sentence of words that are joined by single spaces."""
        return self._tokeniser.detokenise(words)


class TextPipeline:
    """Converts raw source sentences to model tokens, and model tokens to raw target sentences. It is thread-safe.

    :param config: the steps.
    :param subwords: the units, whose class fits config.subwords. They segment words of `LanguageText.words`.
    """

    def __init__(self, config: TextConfig, subwords: Subwords) -> None:
        self.config = config
        self.subwords = subwords
        self._source = LanguageText(config, config.source_language)
        self._target = LanguageText(config, config.target_language)
        self._added = AddedTokens(config.added_tokens, subwords.normalise if isinstance(subwords, WholePieces) else str)

    def __reduce__(self) -> tuple[type[TextPipeline], tuple[TextConfig, Subwords]]:
        return TextPipeline, (self.config, self.subwords)

    @property
    def source_language(self) -> str:
        return self.config.source_language

    @property
    def target_language(self) -> str:
        return self.config.target_language

    @property
    def separator(self) -> str | None:
        """The separator of tokens in the results of `encode`; None: any white space."""
        return self.subwords.separator

    def reversed(self) -> TextPipeline:
        """The same steps and units for translation in the other direction."""
        return self.changed(source_language=self.target_language, target_language=self.source_language)

    def changed(self, **settings: Any) -> TextPipeline:
        """The same units with other steps, given as fields of `TextConfig`.

        :raises SettingError: a value is not possible.
        """
        return TextPipeline(dataclasses.replace(self.config, **settings), self.subwords)

    @property
    def segments(self) -> tuple[Callable[[str], str], Callable[[str], str]]:
        """The segmentation of the words of source and target into units."""
        units = self.subwords
        return units.segment, units.segment_target if isinstance(units, MarianPieces) else units.segment

    def encode(self, sentence: str) -> str:
        """The model tokens of a raw source sentence, joined by single spaces."""
        segment, _ = self.segments
        return self._added.segment(sentence, lambda text: segment(self._source.words(text)))

    def encode_target(self, sentence: str) -> str:
        """The model tokens of a raw target sentence, joined by single spaces."""
        _, segment = self.segments
        return self._added.segment(sentence, lambda text: segment(self._target.words(text)))

    def files(self) -> dict[str, bytes]:
        """The content of each file of the subword units, by file name."""
        return self.subwords.files()

    @property
    def sha256(self) -> str:
        """Hexadecimal SHA-256 of the subword units, without the other steps and the languages."""
        sums = [hashlib.sha256(content).hexdigest() for _, content in sorted(self.files().items())]
        return hashlib.sha256(" ".join([self.config.subwords, *sums]).encode()).hexdigest()

    def decode(self, tokens: str) -> str:
        """The raw sentence of model tokens of the target language, joined by spaces, without special added tokens."""
        return self._target.sentence(self.subwords.join(self._added.visible(tokens)).strip())

    def save(self, folder: str | Path) -> None:
        """Writes pipeline.json and the files of the subword units into `folder`, which is created if it is missing."""
        folder = Path(folder)
        for name, content in self.files().items():
            with atomic_file(folder / name) as temporary:
                temporary.write_bytes(content)
        with atomic_file(folder / CONFIG_FILE) as temporary:
            config = dataclasses.asdict(self.config).items()
            values = {name: value for name, value in config if value or name not in ("lowercase", "added_tokens")}
            text = json.dumps(values, indent=2, ensure_ascii=False, sort_keys=True)
            temporary.write_text(text + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: str | Path) -> TextPipeline:
        """Reads a pipeline that `save` wrote.

        :raises FileNotFoundError: the folder has no pipeline, or a file of the units is missing.
        :raises ValueError: pipeline.json is wrong (SettingError), or a file of the units is damaged.
        """
        folder = Path(folder)
        path = folder / CONFIG_FILE
        if not path.is_file():
            raise FileNotFoundError(
                f"no text pipeline in {folder}: expected {CONFIG_FILE}, which `rskip prepare` writes "
                "(fairseq-preprocess doesn't)"
            )
        config = convert(read_json(path), TextConfig, source=str(path))
        return cls(config, load_subwords(config.subwords, folder))


@dataclass(frozen=True)
class TokenText:
    """Replaces a `TextPipeline` if sentences are model tokens, separated by white space, and stay so."""

    source_language: str
    target_language: str
    separator: ClassVar[None] = None
    sha256: ClassVar[str] = ""  # of no subword units

    def changed(self, **settings: Any) -> TokenText:
        """The same for other languages."""
        return dataclasses.replace(self, **settings)

    def encode(self, sentence: str) -> str:
        """The tokens of a sentence joined by single spaces."""
        return " ".join(sentence.split())

    encode_target = encode

    def decode(self, tokens: str) -> str:
        """The unchanged tokens."""
        return tokens

    def save(self, folder: str | Path) -> None:
        """Does nothing, since tokens need no files."""


def tool_versions(*packages: str) -> dict[str, str]:
    """The installed version of each package, or "not installed"."""
    return {package: installed_version(package) or "not installed" for package in packages}
