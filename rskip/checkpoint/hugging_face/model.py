"""A translation model that was read from a Hugging Face folder."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from rskip.checkpoint.checkpoint import LANGUAGES, Checkpoint
from rskip.settings.check import to_plain
from rskip.text.dictionary import Dictionary
from rskip.text.languages import LanguageTokens
from rskip.text.pipeline import TextPipeline
from rskip.text.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class HuggingFaceModel:
    """A translation model under our names, and the parts of its tokenizer.

    checkpoint: its languages and language tokens are added.
    text: the pipeline, between some two of the model's languages.
    source, target: the dictionaries.
    pair: source and target language, as the user gives them or as the folder says; None: the user has to say it.
    languages: the language tokens of a multilingual model.
    """

    checkpoint: Checkpoint
    text: TextPipeline
    source: Dictionary
    target: Dictionary
    pair: tuple[str | None, str | None]
    languages: LanguageTokens | None = None

    def __post_init__(self) -> None:
        self.checkpoint.config.update(zip(("source_lang", "target_lang"), self.pair, strict=True))
        if self.languages is not None:
            self.checkpoint.config[LANGUAGES] = to_plain(self.languages)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer for the pair."""
        return self._between(*self.pair)

    @property
    def any_tokenizer(self) -> Tokenizer:
        """As `tokenizer`, between any two languages where the user has not said them."""
        others = [code for code in (self.text.source_language, self.text.target_language) if code not in self.pair]
        return self._between(*(code or others.pop(0) for code in self.pair))

    def _between(self, source: str | None, target: str | None) -> Tokenizer:
        if self.languages is not None:
            source, target = self.languages.check_pair(source, target)
        text = self.text.changed(source_language=source, target_language=target)
        return Tokenizer(text, self.source, self.target, self.languages)
