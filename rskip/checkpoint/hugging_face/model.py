"""Reads the translation model of a Hugging Face folder."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from rskip.checkpoint.checkpoint import LANGUAGES, Checkpoint
from rskip.checkpoint.hugging_face.folder import Folder
from rskip.extras import require_torch
from rskip.settings.check import to_plain
from rskip.text.dictionary import Dictionary
from rskip.text.languages import LanguageTokens
from rskip.text.pipeline import TextPipeline
from rskip.text.tokenizer import Tokenizer

TRANSLATION_MODELS = ("fsmt", "m2m_100", "marian", "mbart")  # model types


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


def read_hugging_face(path: Path, *, languages: tuple[str | None, str | None] = (None, None)) -> HuggingFaceModel:
    """The translation model of a folder. No code in the folder is executed.

    :param languages: source and target as the user gives them; None: the folder's own, or unknown.
    :raises FileNotFoundError: a file of the tokenizer or of the weights is missing.
    :raises ValueError: settings, weights or vocabularies that do not fit each other, or a language that it lacks.
    """
    folder = Folder(path)
    kind = folder.check_kind(TRANSLATION_MODELS, "a translation model")
    folder.weights()  # what is missing is told without PyTorch too
    require_torch(str(path))
    from rskip.checkpoint.hugging_face.families import (  # imports PyTorch
        build_checkpoint,
        check_numbers,
        find_family,
        read_settings,
        read_tables,
    )
    from rskip.checkpoint.hugging_face.tokens import TokenizerFiles
    from rskip.checkpoint.hugging_face.vocabularies import read_vocabulary

    files = TokenizerFiles(folder, fast=kind in ("m2m_100", "mbart"))
    family = find_family(kind, files)
    config = read_settings(folder, family)
    check_numbers(config, family, folder)
    weights = folder.tensors()
    tables = read_tables(weights, config, folder)
    found = read_vocabulary(family, files, config, (len(tables.source), len(tables.target)), languages)
    return HuggingFaceModel(
        checkpoint=build_checkpoint(family, config, weights, tables, found.rows),
        text=found.text,
        source=found.source,
        target=found.target,
        pair=found.pair,
        languages=found.languages,
    )
