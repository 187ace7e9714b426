"""A folder as transformers' `save_pretrained` writes it: settings, weights in one or several files, and text files.

The module does not import torch.

    config.json              the settings; `model_type` says which model they are of
    model.safetensors        the weights; or pytorch_model.bin; or either in shards that a .index.json lists
    vocab.json, source.spm   and other files of the tokenizer
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rskip.checkpoint.arrays import FLOATS, Arrays
from rskip.checkpoint.config_file import opened, sums_of
from rskip.files.torch_arrays import read_torch_arrays
from rskip.settings.check import convert
from rskip.settings.errors import SettingError, shown
from rskip.settings.text import read_json

if TYPE_CHECKING:
    from torch import Tensor

CONFIG, ADAPTER = "config.json", "adapter_config.json"
# the first that a folder holds is read
_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
_OTHERS = (".h5", ".msgpack", ".gguf", ".ot")  # weights of other frameworks
_INDEX = ".index.json"  # behind these names where there are shards
# keys of their config.json; a model of ours has `format`, `task` and `model` there
_THEIRS = ("model_type", "architectures", "transformers_version", "auto_map")
_EXPERTS = ("num_experts", "num_local_experts", "router_dtype")  # settings of mixtures of experts
_READ_BY = {  # model type: what reads it, for the error of a reader of other models
    **dict.fromkeys(("fsmt", "m2m_100", "marian", "mbart"), "`rskip translate` and `rskip import` read it"),
    **dict.fromkeys(("gpt2", "llama"), "rskip.checkpoint.read_language_model reads it"),
}
_LFS = b"version https://git-lfs"
TOKENIZER_ADVICE = "copy the tokenizer's files, or call tokenizer.save_pretrained"
_KIND = "weights file of a Hugging Face model"


def folder_at(path: Path) -> Path | None:
    """The Hugging Face folder that `path` is, or whose weights file it is; None: it is something else."""
    names = {name + end for name in _WEIGHTS for end in ("", _INDEX)}
    folder = path.parent if path.is_file() and path.name in names else path
    if (folder / ADAPTER).is_file():
        return folder
    if not (folder / CONFIG).is_file():
        return None
    config = read_json(folder / CONFIG)
    is_theirs = isinstance(config, dict) and "format" not in config and not config.keys().isdisjoint(_THEIRS)
    return folder if is_theirs else None


def suggest_newest(folder: Path) -> str:
    """`give PATH ...` with the newest `checkpoint-STEP` of the Trainer in `folder`, for an error; "" if it has none."""
    found = {path.name.removeprefix("checkpoint-"): path for path in folder.glob("checkpoint-*") if folder_at(path)}
    steps = [step for step in found if step.isdecimal()]
    return f"give {found[max(steps, key=int)]}, the newest checkpoint of the Hugging Face Trainer" if steps else ""


class Folder:
    """A Hugging Face folder whose weights can be read as they are.

    path: the folder. config: the content of its config.json.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._check_adapter()
        self.config = self.read_object(CONFIG)
        self._check_plain()

    def check_kind(self, known: Collection[str], what: str) -> str:
        """The model type, such as "marian", which must be one of `known`.

        :param what: the kind of models that are known, for the error.
        """
        kind = self.config.get("model_type")
        expected = f"{what}: one of {', '.join(sorted(known))}"
        if any(self.config.get(name) for name in _EXPERTS):
            problem = f"has a mixture of experts ({shown(kind)}), which rskip can't compute"
            raise self.error(problem, file=CONFIG, expected=expected)
        if not isinstance(kind, str) or kind not in known:
            advice = _READ_BY.get(str(kind), "")
            raise self.error(f"is {shown(kind)}", name="model_type", file=CONFIG, expected=expected, advice=advice)
        return kind

    def file(self, name: str) -> Path:
        """The path of a file that the folder has to hold. Raises `FileNotFoundError` if it is missing."""
        path = self.path / name
        if not path.is_file():
            raise FileNotFoundError(f"{path} is missing: get all files of the model, or {TOKENIZER_ADVICE}")
        with path.open("rb") as file:
            if file.read(len(_LFS)) == _LFS:
                raise ValueError(f"{path} holds a pointer of Git LFS, not the file itself: run `git lfs pull` there")
        return path

    def has(self, name: str) -> bool:
        """Whether the folder holds a file of this name."""
        return (self.path / name).is_file()

    def read_object(self, name: str) -> dict[str, Any]:
        """The content of a JSON file that the folder has to hold."""
        path = self.file(name)
        content = read_json(path)
        if isinstance(content, dict):  # `convert` takes a second for a vocabulary
            return content
        return convert(content, dict[str, Any], source=str(path))

    def read_optional(self, name: str) -> dict[str, Any]:
        """The content of a JSON file; empty if the folder doesn't have it."""
        return self.read_object(name) if self.has(name) else {}

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of all weights."""
        shapes: dict[str, tuple[int, ...]] = {}
        for path in self.weights():
            if path.suffix == ".bin":
                return {name: array.shape for name, array in self.arrays.items()}
            with opened(path, framework="np") as file:
                shapes |= {_name(name): tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
        return shapes

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        """All weights, on the CPU, under the names that they have in the files."""
        return {_name(name): each for path in self.weights() for name, each in _read_weights(path).items()}

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        """All weights that are floats, in float32, read without PyTorch. Tied ones may be one array."""
        arrays: dict[str, np.ndarray] = {}
        for path in self.weights():
            if path.suffix == ".bin":
                found = {_name(name): each for name, each in read_torch_arrays(path).items() if each.dtype.kind == "f"}
                arrays |= found
                continue
            with opened(path, framework="np") as file:
                sums = sums_of(file.metadata() or {}, path=path)
            with path.open("rb") as content:
                stored = Arrays(content, path, tied={}, sums=sums)
                arrays |= {_name(name): stored.read(name) for name, kind in stored.kinds.items() if kind in FLOATS}
        return arrays

    def weights(self) -> list[Path]:
        """The files of the weights."""
        for name in _WEIGHTS:
            if self.has(name):
                return [self.file(name)]
            if self.has(name + _INDEX):
                return self._shards(name + _INDEX)
        others = [path.name for path in sorted(self.path.iterdir()) if path.suffix in _OTHERS]
        found = f" ({', '.join(others)} can't be read)" if others else ""
        raise FileNotFoundError(f"no weights in {self.path}: expected {' or '.join(_WEIGHTS)}{found}")

    def error(self, problem: str, *, file: str = "", name: str = "", **further: str) -> SettingError:
        """The error for a file of the folder, or for the folder. See `SettingError`."""
        return SettingError(name, problem, source=str(self.path / file), **further)

    def wrong(self, name: str, value: object, expected: str, *, file: str = CONFIG) -> SettingError:
        """The error for the value of a setting in a file."""
        return SettingError.of_value(name, value, expected, source=str(self.path / file))

    def _shards(self, index: str) -> list[Path]:
        source = str(self.path / index)
        places = convert(self.read_object(index).get("weight_map"), dict[str, str], name="weight_map", source=source)
        shards = sorted({*places.values()})
        if missing := [shard for shard in shards if Path(shard).name != shard or not self.has(shard)]:
            problem = f"names {len(shards)} files of weights, of which {', '.join(missing)} is missing"
            raise FileNotFoundError(f"{source} {problem}: get all files of the model")
        return [self.file(shard) for shard in shards]

    def _check_adapter(self) -> None:
        if self.has(ADAPTER):
            base = self.read_object(ADAPTER).get("base_model_name_or_path")
            problem = f"is an adapter (LoRA) for {base or 'another model'}"
            advice = "merge it into that model (merge_and_unload of the package peft) and give the merged folder"
            raise self.error(problem, expected="a complete model", advice=advice)

    def _check_plain(self) -> None:
        quantised = self.config.get("quantization_config")
        method = quantised.get("quant_method") if isinstance(quantised, Mapping) else None
        if quantised is not None and method != "gguf":  # transformers reads GGUF files into float32, and keeps the mark
            problem = f"has quantised weights ({shown(method or quantised)})"
            raise self.error(problem, file=CONFIG, advice="give the original model; --precision int8 quantises it here")
        if "auto_map" in self.config:
            problem = "needs its own code (auto_map, trust_remote_code), which rskip never runs"
            raise self.error(problem, file=CONFIG, expected="a model whose code is in transformers")


def _name(name: str) -> str:
    return name.removeprefix("module.")  # of DistributedDataParallel


def _read_weights(path: Path) -> dict[str, Tensor]:
    from rskip.checkpoint.tensors import check_tensors, read_tensors  # imports PyTorch
    from rskip.files.torch_file import read_torch_file

    if path.suffix == ".bin":
        return check_tensors(read_torch_file(path, kind=_KIND), source=str(path))
    with opened(path, framework="pt") as file:
        sums = sums_of(file.metadata() or {}, path=path)  # `rskip export` writes them
        return check_tensors(read_tensors(file, sums, path=path), source=str(path))
