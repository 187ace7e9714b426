"""A model's files on disk: finds the model's file, reads it, and computes its checksum."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from rskip.checkpoint import build_transformer, read_checkpoint
from rskip.checkpoint.files import checkpoint_sha256
from rskip.checkpoint.transformer import check_translates, check_vocabulary
from rskip.cpu import for_inference
from rskip.files.checksum import sha256_file
from rskip.settings.errors import SettingError
from rskip.text import Tokenizer
from rskip.text.finding import TOKENS
from rskip.translation.onnx_decoder import ONNX_FILE, OnnxTransformer, read_settings
from rskip.translation.search import TranslationModel

_SUFFIXES = (".safetensors", ".pt")
# a model; then what a training leaves, of rskip's runs the average, of fairseq's the best on the validation data
_PREFERRED = ("model.safetensors", "model.pt", "averaged.pt", "checkpoint_best.pt", "checkpoint_last.pt")


def find_model_file(path: str | os.PathLike[str]) -> Path:
    """onnx.json of the folder `path` of ONNX graphs, or `path` where it is that; else what `find_checkpoint` finds."""
    file = Path(path)
    file = file if file.name == ONNX_FILE else file / ONNX_FILE
    return file if file.is_file() else find_checkpoint(path)


def find_checkpoint(path: str | os.PathLike[str]) -> Path:
    """The checkpoint file that `path` is, or that the folder `path` holds.

    :raises FileNotFoundError: neither, or a folder without a checkpoint.
    :raises ValueError: a folder with several checkpoints, none of them with the name of a model or, as fairseq and
        `rskip run` call them, of the one to use.
    """
    path = Path(path)
    if path.is_file():
        return path
    if not path.is_dir():
        raise FileNotFoundError(
            f"no model {path}: expected a checkpoint ({', '.join(_SUFFIXES)}), or a folder of one, dictionaries and "
            "text pipeline (`rskip zoo list` shows the names for rskip.load)"
        )
    for name in _PREFERRED:
        if (path / name).is_file():
            return path / name
    found = sorted(each for each in path.iterdir() if each.suffix in _SUFFIXES)
    if not found and (path / ONNX_FILE).is_file():
        raise FileNotFoundError(f"{path} holds ONNX graphs, no checkpoint: give the model that they were exported from")
    if not found:
        raise FileNotFoundError(f"no checkpoint ({', '.join(_SUFFIXES)}) in the folder {path}")
    if len(found) > 1:
        raise ValueError(f"{path} holds {len(found)} checkpoints: give one of them, such as {found[0]}")
    return found[0]


def open_model(path: str | os.PathLike[str]) -> StoredWeights | StoredGraphs:
    """The content of the model's file, before the model is built."""
    file = find_model_file(path)
    return StoredGraphs(file) if file.name == ONNX_FILE else StoredWeights(file)


class StoredWeights:
    """A model's checkpoint.

    languages: source and target; None where the checkpoint doesn't name them.
    data: folders of its training data.
    text: None, since the text pipeline has to be found.
    """

    text: str | None = None

    def __init__(self, file: Path) -> None:
        self.file, self.checkpoint = file, read_checkpoint(file)
        self.data = [folder for folder in map(Path, self.checkpoint.trained_on) if folder.is_dir()]
        with _errors_about(file):
            check_translates(self.checkpoint)
        self.languages = self.checkpoint.config["source_lang"], self.checkpoint.config["target_lang"]

    def build(self, tokenizer: Tokenizer, *, precision: str | None, device: torch.device) -> TranslationModel:
        """The model on the device. Its vocabularies must match the tokenizer."""
        sizes = {"source_vocabulary": len(tokenizer.source), "target_vocabulary": len(tokenizer.target)}
        with _errors_about(self.file):
            model = build_transformer(self.checkpoint, **sizes)
            model.move(device)
            return for_inference(model, precision or "float32")


class StoredGraphs:
    """A model's ONNX graphs. `text` is TOKENS if sentences are tokens already."""

    def __init__(self, file: Path) -> None:
        self.file, self.settings, self.data = file, read_settings(file), list[Path]()
        self.languages = self.settings.source_language, self.settings.target_language
        self.text = TOKENS if self.settings.text == TOKENS else None

    def build(self, tokenizer: Tokenizer, *, precision: str | None, device: torch.device) -> TranslationModel:
        """Like `StoredWeights.build`, on the CPU."""
        own = self.settings.precision
        with _errors_about(self.file):
            check_vocabulary("source", self.settings.source_vocabulary, len(tokenizer.source))
            check_vocabulary("target", self.settings.target_vocabulary, len(tokenizer.target))
            if precision not in (None, own):
                advice = "export the model in another precision, or use the model itself"
                raise SettingError.of_value("precision", precision, f"{own}, as the graphs are", advice=advice)
        model = OnnxTransformer(self.file.parent, self.settings)
        model.move(device)
        return model


def model_sha256(path: str | os.PathLike[str], tokenizer: Tokenizer) -> str:
    """Hexadecimal SHA-256 of the model at `path`, and of its dictionaries and text pipeline."""
    parts = [checkpoint_sha256(find_model_file(path)), tokenizer.source_language, tokenizer.target_language]
    for dictionary in (tokenizer.source, tokenizer.target):
        parts.append(hashlib.sha256("\n".join(dictionary.tokens).encode("utf-8")).hexdigest())
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.text.save(folder)
        parts += [sha256_file(each) for each in sorted(Path(folder).iterdir())]
    return hashlib.sha256("\n".join(parts).encode("utf-8")).hexdigest()


@contextmanager
def _errors_about(file: Path) -> Iterator[None]:
    try:
        yield
    except SettingError as error:
        raise error.within(source=str(file)) from None
