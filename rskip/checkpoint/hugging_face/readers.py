"""Finds the reader of a Hugging Face folder by the `model_type` in its config.json."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import NamedTuple, Protocol

from rskip.checkpoint.checkpoint import Checkpoint
from rskip.checkpoint.hugging_face.folder import CONFIG, Folder
from rskip.settings.errors import SettingError, shown
from rskip.text.tokenizer import Tokenizer

# model_type: the module whose `read` is its `Reader`
READERS: dict[str, str] = {"marian": "rskip.checkpoint.hugging_face.marian"}


class HuggingFaceModel(NamedTuple):
    """A translation model under our names, and its tokenizer."""

    checkpoint: Checkpoint
    tokenizer: Tokenizer


class Reader(Protocol):
    """Reads the folders of one model type.

    :param languages: source and target as the user gives them; None: the folder's own.
    :raises FileNotFoundError: a file of the tokenizer or of the weights is missing.
    :raises ValueError: settings, weights or vocabularies that do not fit each other, or a language that it lacks.
    """

    def __call__(self, folder: Folder, *, languages: tuple[str | None, str | None]) -> HuggingFaceModel: ...


def read_hugging_face(path: Path, *, languages: tuple[str | None, str | None] = (None, None)) -> HuggingFaceModel:
    """The model of a folder. No code in the folder is executed.

    :param languages: as for `Reader`.
    :raises FileNotFoundError, ValueError: as `Folder` and the model type's `Reader`.
    """
    folder = Folder(path)
    return find_reader(folder)(folder, languages=languages)


def find_reader(folder: Folder) -> Reader:
    """The reader of a folder's model type.

    :raises SettingError: another model type. The message lists the known ones.
    """
    if (kind := folder.model_type) not in READERS:
        known = f"a translation model: one of {', '.join(sorted(READERS))}"
        raise SettingError("model_type", f"is {shown(kind)}", expected=known, source=str(folder.path / CONFIG))
    reader: Reader = import_module(READERS[kind]).read
    return reader
