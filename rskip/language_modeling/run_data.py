"""Finds or prepares the text of a run."""

from __future__ import annotations

from pathlib import Path

from rskip.corpora import TEXT_CORPORA, find_text_corpus
from rskip.language_modeling.data import TextData, load_data
from rskip.language_modeling.preparation import prepare_text
from rskip.language_modeling.recipe import LanguageModelingSettings


def ensure_data(settings: LanguageModelingSettings, *, mirror: str | None) -> TextData:
    """The text of a run. A corpus that is not prepared yet is prepared in data-bin/.

    :raises SettingError: the name is unknown.
    :raises FileNotFoundError, ValueError: as `prepare_text` or `load_data`.
    """
    name = settings.data
    if name not in TEXT_CORPORA and Path(name).exists():
        return load_data(name)
    folder = data_folder(settings)
    prepare_text(find_text_corpus(name), folder, mirror=mirror)
    return load_data(folder)


def data_folder(settings: LanguageModelingSettings) -> Path:
    """The folder of a run's prepared text."""
    name = settings.data
    return Path("data-bin", name) if name in TEXT_CORPORA or not Path(name).exists() else Path(name)
