"""A model's files on disk: finds the model's file, reads it, and computes its checksum."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rskip.checkpoint import hugging_face
from rskip.checkpoint.arrays import ModelFile
from rskip.checkpoint.checkpoint import PAIRS, Checkpoint
from rskip.checkpoint.config_file import CONFIG, checkpoint_sha256
from rskip.checkpoint.fairseq_languages import language_tokens, of_pair
from rskip.checkpoint.hugging_face import Folder, folder_at, is_hub_name, suggest_newest
from rskip.checkpoint.translation import check_translates, check_vocabulary
from rskip.extras import has_torch, require_torch
from rskip.files.checksum import sha256_file
from rskip.generation.runtime import RuntimeModel
from rskip.kernel_forms import PRECISIONS, NoKernelForm
from rskip.machine.device import is_cpu
from rskip.settings.errors import SettingError, errors_about
from rskip.text import TextPipeline, Tokenizer
from rskip.text.finding import (
    TOKENS,
    TokenizerSettings,
    build_text,
    find_tokenizer,
)
from rskip.translation.onnx_settings import ONNX_FILE, read_settings
from rskip.translation.search import TorchModel, TranslationModel

if TYPE_CHECKING:
    import torch

    from rskip.checkpoint.hugging_face import HuggingFaceModel, StoredFolder

_SUFFIXES = (".safetensors", ".pt")
# a model; then what a training leaves, of rskip's runs the average, of fairseq's the best on the validation data
_PREFERRED = ("model.safetensors", "model.pt", "averaged.pt", "checkpoint_best.pt", "checkpoint_last.pt")
# what rskip can't read, by a file in the folder
_FOREIGN = {
    "model/model.bin": "a package of Argos Translate, whose model is one of CTranslate2: translate with argostranslate",
    "model.bin": "a CTranslate2 model, which rskip only writes: give the model that it was converted from",
    "*.npz": "a model of Marian itself: convert it with convert_marian_to_pytorch.py of transformers, or take the "
    "converted model of the Hub, such as hf:Helsinki-NLP/opus-mt-en-de",
}


def foreign_model(folder: Path) -> str:
    """What a folder of another program holds, which rskip can't read, and what to do; "": nothing known."""
    return next((f"{folder} is {what}" for pattern, what in _FOREIGN.items() if any(folder.glob(pattern))), "")


def find_model_file(path: str | os.PathLike[str]) -> Path:
    """A Hugging Face folder, which holds several files; onnx.json of a folder of ONNX graphs; else what
    `find_checkpoint` finds."""
    if (folder := folder_at(Path(path))) is not None:
        return folder
    file = Path(path)
    file = file if file.name == ONNX_FILE else file / ONNX_FILE
    return file if file.is_file() else find_checkpoint(path)


def find_checkpoint(path: str | os.PathLike[str]) -> Path:
    """The checkpoint file that `path` is, or that the folder `path` holds."""
    path = Path(path)
    if path.is_file():
        if path.suffix not in _SUFFIXES:
            raise ValueError(f"{path}: the name of a checkpoint ends in {' or '.join(_SUFFIXES)}")
        return path
    if not path.is_dir():
        raise FileNotFoundError(
            f"no model {path}: expected a checkpoint ({', '.join(_SUFFIXES)}), or a folder with one, dictionaries and "
            "a text pipeline (`rskip zoo list` shows the names for rskip.load)"
        )
    for name in _PREFERRED:
        if (path / name).is_file():
            return path / name
    found = _checkpoints(path)
    if len(found) > 1:
        raise ValueError(
            f"{path} holds {len(found)} checkpoints: give one of them, such as {found[0]}, or several as an ensemble, "
            "joined by ':'"
        )
    if found:
        return found[0]
    problem = f"no checkpoint ({', '.join(_SUFFIXES)}) in the folder {path}"
    if foreign := foreign_model(path):
        problem = foreign
    elif (path / ONNX_FILE).is_file():
        problem = f"{path} holds ONNX graphs, not a checkpoint: give the model they were exported from"
    elif any(path.glob("*.idx")):
        problem = f"{path} is a data folder, not a model: train with `rskip train {path}`, then give the model's folder"
    elif newest := suggest_newest(path):
        problem += f": {newest}"
    raise FileNotFoundError(problem)


def _checkpoints(folder: Path) -> list[Path]:
    return sorted(each for each in folder.iterdir() if each.suffix in _SUFFIXES)


def find_model_files(path: str | os.PathLike[str]) -> list[Path]:
    """What `find_model_file` finds, or of an ensemble the file of each model: `a.pt:b.pt`, or a folder of several."""
    parts = model_parts(path)
    if len(parts) > 1:
        return [find_model_file(part) for part in parts]
    if (folder := folder_at(Path(path))) is not None:
        return [folder]
    members = _members(Path(path))
    return members if len(members) > 1 else [find_model_file(path)]


def model_parts(path: str | os.PathLike[str]) -> list[str]:
    """The models of an ensemble that `:` joins, or the one model, such as `hf:OWNER/NAME`."""
    given = os.fspath(path)
    return [given] if os.path.exists(given) or is_hub_name(given) else given.split(":")


def _members(folder: Path) -> list[Path]:
    """The checkpoints of a folder that has neither a model's usual file nor those of a training's epochs."""
    if not folder.is_dir() or any((folder / name).is_file() for name in (*_PREFERRED, ONNX_FILE)):
        return []
    found = _checkpoints(folder)
    return [] if any(each.name.startswith("checkpoint") for each in found) else found


def open_model(path: str | os.PathLike[str]) -> Stored:
    """The content of the model's files, before the model is built."""
    files = find_model_files(path)
    return StoredEnsemble([_open_file(file) for file in files]) if len(files) > 1 else _open_file(files[0])


def _open_file(file: Path) -> StoredWeights | StoredGraphs:
    if file.is_dir():
        return StoredHuggingFace(file)
    return StoredGraphs(file) if file.name == ONNX_FILE else StoredWeights(file)


class StoredWeights:
    """A model's checkpoint. Of a checkpoint with a model for each pair of languages, `tokenizer` chooses one.

    config: its `Checkpoint.config`.
    """

    _stored: ModelFile | None = None  # of a .safetensors file

    def __init__(self, file: Path) -> None:
        self.file = file
        if file.suffix == ".safetensors":
            self._stored = ModelFile(file)
            self.config, shapes = self._stored.config, self._stored.shapes
        else:
            self.config, shapes = self.checkpoint.config, self.checkpoint.shapes
        with errors_about(file):
            check_translates(self.config, shapes)

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint with its tensors, which PyTorch reads."""
        require_torch(str(self.file))
        from rskip.checkpoint.files import read_checkpoint

        return read_checkpoint(self.file)

    @property
    def parameters(self) -> int:
        """The number of parameters. Tied ones count once."""
        if (arrays := self._arrays) is None:
            return sum({id(each): each.numel() for each in self.checkpoint.model.values()}.values())
        with arrays.parameters() as stored:
            return sum(math.prod(stored.shapes[name]) for name in {*map(stored.stored, stored.shapes)})

    def tokenizer(self, settings: TokenizerSettings) -> Tokenizer:
        """The model's tokenizer. See `find_tokenizer`."""
        languages = settings.languages
        if PAIRS in self.config:
            self.checkpoint = of_pair(self.checkpoint, *languages)
            self.config = self.checkpoint.config
        own = self.config["source_lang"], self.config["target_lang"]
        trained_on = [] if self._stored is not None else self.checkpoint.trained_on
        data = [folder for folder in map(Path, trained_on) if folder.is_dir()]
        with errors_about(self.file):
            tokens = language_tokens(self.config)
        if tokens is not None:
            settings = replace(settings, languages=(languages[0] or own[0], languages[1] or own[1]))
        return find_tokenizer(self.file, settings, own_languages=own, data=data, tokens=tokens)

    def build(self, tokenizer: Tokenizer, *, precision: str | None, device: str | torch.device) -> TranslationModel:
        """The model on the device. Its vocabularies must match the tokenizer.

        On a CPU the compiled kernels compute it without PyTorch, if they can.
        """
        if not is_cpu(device) or (arrays := self._arrays) is None:
            return self.build_in_torch(tokenizer, precision=precision, device=device)
        if precision not in (None, *PRECISIONS):
            raise ValueError(f"unknown precision {precision!r}: expected one of {', '.join(PRECISIONS)}")
        words = {"source_words": len(tokenizer.source), "target_words": len(tokenizer.target)}
        try:
            with errors_about(self.file):
                return RuntimeModel(arrays, precision=precision or "float32", **words)
        except NoKernelForm as error:
            if error.without_torch is not None and not has_torch():
                raise error.without_torch.within(source=str(self.file)) from None
            require_torch(f"{self.file} ({error})")
        return self.build_in_torch(tokenizer, precision=precision, device=device)

    @property
    def _arrays(self) -> ModelFile | StoredFolder | None:
        """The weights for computing without PyTorch; None: only PyTorch can read them."""
        return self._stored

    def build_in_torch(self, tokenizer: Tokenizer, *, precision: str | None, device: str | torch.device) -> TorchModel:
        """Like `build`, in PyTorch."""
        require_torch(str(self.file))
        import torch

        from rskip.checkpoint.transformer import build_transformer
        from rskip.cpu import for_inference

        sizes = {"source_vocabulary": len(tokenizer.source), "target_vocabulary": len(tokenizer.target)}
        with errors_about(self.file):
            model: Any = build_transformer(self.checkpoint, **sizes, as_stored=True)
            model.move(torch.device(device))
            return for_inference(model, precision or "float32")


class StoredHuggingFace(StoredWeights):
    """A Hugging Face folder, which `tokenizer` reads. `file` is the folder."""

    def __init__(self, file: Path) -> None:
        self.file = file

    @cached_property
    def _model(self) -> HuggingFaceModel:
        """The model for the folder's own languages, until `tokenizer` is asked for others."""
        return hugging_face.read_hugging_face(self.file)

    @property
    def checkpoint(self) -> Checkpoint:
        """The model in PyTorch."""
        return self._model.checkpoint

    @property
    def _arrays(self) -> StoredFolder:
        return hugging_face.StoredFolder(self._model)

    @property
    def config(self) -> dict[str, Any]:  # type: ignore[override]
        """The `Checkpoint.config`."""
        return self._arrays.config

    def tokenizer(self, settings: TokenizerSettings) -> Tokenizer:
        """The folder's tokenizer; `text` can only be TOKENS."""
        text = settings.text
        for name, given in (("dictionaries", settings.dictionaries), ("text", None if text == TOKENS else text)):
            if given is not None:
                problem = f"is {given}, but {self.file} is a Hugging Face folder, which has its own"
                raise SettingError(name, problem, advice="leave it out")
        self._model = hugging_face.read_hugging_face(self.file, languages=settings.languages)
        own = self._model.tokenizer
        found = own.text if text != TOKENS and isinstance(own.text, TextPipeline) else None
        known = own.source_language, own.target_language
        changed = build_text(found, known, dictionary=own.source, settings=settings.steps)
        return Tokenizer(changed, own.source, own.target, own.languages)


class StoredGraphs:
    """A model's ONNX graphs."""

    def __init__(self, file: Path) -> None:
        self.file, self.settings = file, read_settings(file)

    def tokenizer(self, settings: TokenizerSettings) -> Tokenizer:
        """The model's tokenizer. See `find_tokenizer`."""
        if settings.text is None and self.settings.text == TOKENS:
            settings = replace(settings, text=TOKENS)
        own = self.settings.source_language, self.settings.target_language
        return find_tokenizer(self.file, settings, own_languages=own, data=())

    def build_in_torch(self, tokenizer: Tokenizer, *, precision: str | None, device: str | torch.device) -> TorchModel:
        """Like `StoredWeights.build`, on the CPU."""
        own = self.settings.precision
        with errors_about(self.file):
            check_vocabulary("source", self.settings.source_vocabulary, len(tokenizer.source))
            check_vocabulary("target", self.settings.target_vocabulary, len(tokenizer.target))
            if precision not in (None, own):
                advice = "export the model in another precision, or use the model itself"
                raise SettingError.of_value("precision", precision, f"{own}, as the graphs are", advice=advice)
        require_torch(str(self.file))
        import torch

        from rskip.translation.onnx_decoder import OnnxTransformer

        model = OnnxTransformer(self.file.parent, self.settings)
        model.move(torch.device(device))
        return model

    build = build_in_torch


class StoredEnsemble:
    """The models of an ensemble. Each may have a tokenizer beside its file; the tokenizers must be equal."""

    file: Path | None = None

    def __init__(self, models: Sequence[StoredWeights | StoredGraphs]) -> None:
        self.models = list(models)

    def tokenizer(self, settings: TokenizerSettings) -> Tokenizer:
        """The tokenizer of all models."""
        first, *others = (model.tokenizer(settings) for model in self.models)
        expected = _parts(first)
        for model, other in zip(self.models[1:], others, strict=True):
            for what, part in _parts(other).items():
                if part != expected[what]:
                    problem = f"{model.file} has {what} than {self.models[0].file}"
                    raise SettingError("", problem, expected="models of one training corpus for an ensemble")
        return first

    def build_in_torch(self, tokenizer: Tokenizer, *, precision: str | None, device: str | torch.device) -> TorchModel:
        """Like `StoredWeights.build`, in PyTorch."""
        require_torch("an ensemble")
        from rskip.translation.ensemble import Ensemble

        built = [model.build_in_torch(tokenizer, precision=precision, device=device) for model in self.models]
        for model, each in zip(self.models, built, strict=True):
            if each.target_start != built[0].target_start:
                problem = f"{model.file} starts its targets with another token than {self.models[0].file}"
                raise SettingError("", problem, expected="models of one kind for an ensemble")
        return Ensemble(built)

    build = build_in_torch


Stored = StoredWeights | StoredGraphs | StoredEnsemble


def _parts(tokenizer: Tokenizer) -> dict[str, object]:
    """What the models of an ensemble must share."""
    text = tokenizer.text
    return {
        "another source dictionary": tokenizer.source.tokens,
        "another target dictionary": tokenizer.target.tokens,
        "other languages": (tokenizer.source_language, tokenizer.target_language, tokenizer.languages),
        "another text pipeline": (text.config, text.sha256) if isinstance(text, TextPipeline) else None,
    }


def model_sha256(path: str | os.PathLike[str]) -> str:
    """Hexadecimal SHA-256 of the model at `path`, without its tokenizer."""
    parts = []
    for file in find_model_files(path):
        own = [file / CONFIG, *Folder(file).weights()] if file.is_dir() else []
        parts += [sha256_file(each) for each in own] if own else [checkpoint_sha256(file)]
    return hashlib.sha256("\n".join(parts).encode("utf-8")).hexdigest()
