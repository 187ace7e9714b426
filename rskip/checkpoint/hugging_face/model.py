"""Reads the translation model of a Hugging Face folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from rskip.checkpoint.arrays import LoadedArrays
from rskip.checkpoint.checkpoint import LANGUAGES, Checkpoint
from rskip.checkpoint.hugging_face.families import (
    build_checkpoint,
    check_numbers,
    find_family,
    find_tables,
    read_settings,
)
from rskip.checkpoint.hugging_face.folder import Folder
from rskip.checkpoint.hugging_face.tokens import TokenizerFiles
from rskip.checkpoint.hugging_face.vocabularies import read_vocabulary
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

    folder: its files.
    build: makes its checkpoint of its weights, as tensors or arrays.
    text: the pipeline, between some two of the model's languages.
    source, target: the dictionaries.
    pair: source and target language, as the user gives them or as the folder says; None: the user has to say it.
    languages: the language tokens of a multilingual model.
    """

    folder: Folder
    build: Callable[[Mapping[str, Any]], Checkpoint]
    text: TextPipeline
    source: Dictionary
    target: Dictionary
    pair: tuple[str | None, str | None]
    languages: LanguageTokens | None = None

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """The model in PyTorch, with its languages and language tokens."""
        require_torch(str(self.folder.path))
        import torch

        found = self.made_of(self.folder.tensors)
        arrays = {name: each for name, each in found.model.items() if isinstance(each, np.ndarray)}
        found.model |= {name: torch.from_numpy(each) for name, each in arrays.items()}
        return found

    def made_of(self, weights: Mapping[str, Any]) -> Checkpoint:
        """The checkpoint of these weights of the folder, which are tensors or arrays."""
        checkpoint = self.build(weights)
        checkpoint.config.update(zip(("source_lang", "target_lang"), self.pair, strict=True))
        if self.languages is not None:
            checkpoint.config[LANGUAGES] = to_plain(self.languages)
        return checkpoint

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
    files = TokenizerFiles(folder, fast=kind in ("m2m_100", "mbart"))
    family = find_family(kind, files)
    config = read_settings(folder, family)
    check_numbers(config, family, folder)
    tables = find_tables(folder.shapes, config, folder)
    sizes = folder.shapes[tables.source][0], folder.shapes[tables.target][0]
    found = read_vocabulary(family, files, config, sizes, languages)
    return HuggingFaceModel(
        folder=folder,
        build=partial(build_checkpoint, family, config, tables=tables, rows=found.rows),
        text=found.text,
        source=found.source,
        target=found.target,
        pair=found.pair,
        languages=found.languages,
    )


class StoredFolder:
    """The weights of a model in safetensors, for computing without PyTorch. Unpickling reads the folder again.

    config: its `Checkpoint.config`. shapes: of its parameters.
    """

    def __init__(self, model: HuggingFaceModel) -> None:
        self.path = model.folder.path.absolute()
        self._checkpoint: Checkpoint | None = model.made_of(model.folder.arrays)
        self.config, self.shapes = self._checkpoint.config, self._checkpoint.shapes

    def __reduce__(self) -> tuple[Any, ...]:
        return _stored_at, (self.path,)

    @contextmanager
    def parameters(self) -> Iterator[LoadedArrays]:
        """The parameters, once: then their memory is free."""
        assert self._checkpoint is not None
        yield LoadedArrays(self._checkpoint.model)  # type: ignore[arg-type]
        self._checkpoint = None


def _stored_at(path: Path) -> StoredFolder:
    return StoredFolder(read_hugging_face(path))
