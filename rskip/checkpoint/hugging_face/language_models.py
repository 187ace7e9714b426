"""Reads Hugging Face folders of language models: what their readers share, and the readers by `model_type`."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import msgspec
from torch import Tensor

from rskip.checkpoint.checkpoint import Checkpoint
from rskip.checkpoint.hugging_face.folder import CONFIG, Folder
from rskip.checkpoint.hugging_face.readers import check_known
from rskip.settings.errors import SettingError
from rskip.transformer import LanguageModelConfig

_HERE = "rskip.checkpoint.hugging_face"
# model_type: the module whose `read` is its `LanguageModelReader`
LANGUAGE_MODEL_READERS = {"gpt2": f"{_HERE}.gpt2", "llama": f"{_HERE}.llama"}
_EMBEDDING, _OUTPUT = "decoder.embed_tokens.weight", "decoder.output_projection.weight"


class LanguageModelReader(Protocol):
    """Reads the folders of one model type. The checkpoint has no padding, and tokens are the folder's own.

    :raises FileNotFoundError: weights are missing.
    :raises ValueError: settings that `LanguageModel` lacks, or weights that do not fit them.
    """

    def __call__(self, folder: Folder) -> Checkpoint: ...


def read_hugging_face_language_model(path: Path) -> Checkpoint:
    """The language model of a folder. No code in the folder is executed, and tokenizers are not read.

    :raises FileNotFoundError, ValueError: as `Folder` and `LanguageModelReader`.
    """
    folder = Folder(path)
    kind = check_known(folder, LANGUAGE_MODEL_READERS, "a language model")
    reader: LanguageModelReader = import_module(LANGUAGE_MODEL_READERS[kind]).read
    return reader(folder)


def refuse_settings(config: msgspec.Struct, usual: Mapping[str, Any], folder: Folder) -> None:
    """Refuses settings whose value is not the one, or one of the tuple, that rskip computes.

    :raises SettingError: a value is another one. The error names the first one.
    """
    for name, values in usual.items():
        known = values if isinstance(values, tuple) else (values,)
        if (value := getattr(config, name)) not in known:
            expected = " or ".join("null" if each is None else str(each).lower() for each in known)
            raise SettingError.of_value(name, value, expected, source=str(folder.path / CONFIG))


def language_model_of(folder: Folder, weights: dict[str, Tensor], *, vocabulary: int, **settings: Any) -> Checkpoint:
    """The checkpoint of weights under our names.

    :param settings: fields of `LanguageModelConfig`.
    :raises SettingError: a setting is not possible.
    """
    try:
        config = LanguageModelConfig.from_dict({"no_scale_embedding": True, **settings})
    except SettingError as error:
        raise error.within(source=str(folder.path / CONFIG)) from None
    if config.output_is_embedding and _EMBEDDING in weights:
        weights[_OUTPUT] = weights[_EMBEDDING]
    about = {"task": "language_modeling", "arch": folder.model_type, "source_lang": None, "target_lang": None}
    return Checkpoint(model=weights, config={**about, "model": {"vocabulary": vocabulary, **config.to_dict()}})
