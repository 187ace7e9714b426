"""Reads and writes files of checkpoints (fairseq's .pt or safetensors, by suffix) and folders of published models.

A safetensors file has tensors and metadata: `format`, and `tied` (JSON: maps a name to the name that stores its
tensor). In the format "rskip-1" the metadata also has `config` (JSON, see Checkpoint.config) and `averaged_from`
(JSON: file names), so one file is a complete model. In the format "rskip-2" they are in config.json next to the file:

config.json         `format`, `task`, `model` (the settings of the model), and the task's own values
    model.safetensors   the tensors
    ...                 the task's further files, such as dictionaries

A model with settings that an earlier rskip would ignore has the format "rskip-3" instead of "rskip-1", or in
config.json the format 2 instead of 1. An earlier rskip refuses these formats.

Every task publishes its models as such a folder, which contains neither pickles nor paths of a machine.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from rskip.checkpoint.checkpoint import (
    Checkpoint,
    cast_floats,
    check_config,
    check_tensors,
    needs_newer_format,
    tied_names,
)
from rskip.checkpoint.fairseq_file import read_fairseq, write_fairseq
from rskip.files.checksum import sha256_file
from rskip.files.whole import atomic_file
from rskip.machine.torch_errors import system_error
from rskip.settings.check import convert
from rskip.settings.errors import SettingError, shown
from rskip.settings.text import parse_json, read_json

CONFIG, WEIGHTS = "config.json", "model.safetensors"
# formats of safetensors files: config inside (the second if `needs_newer_format`), or in config.json
WHOLE, BESIDE = ("rskip-1", "rskip-3"), "rskip-2"
FORMATS = (1, 2)  # formats of config.json; 2 if `needs_newer_format`
OF_EVERY_TASK = ("task", "arch", "source_lang", "target_lang")  # keys of every `Checkpoint.config`, with `model`


def read_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Reads a checkpoint of fairseq from a .pt file, or ours from a .safetensors file, to the CPU.

    :raises FileNotFoundError: the file does not exist.
    :raises ValueError: the suffix is unknown, or the file does not have the format of its suffix.
    """
    path = Path(path)
    read, _ = _format(path)
    if not path.is_file():
        raise FileNotFoundError(f"no checkpoint file {path}")
    return read(path)


def write_checkpoint(
    path: str | os.PathLike[str], checkpoint: Checkpoint, *, dtype: torch.dtype | None = None
) -> None:
    """Writes a checkpoint atomically: .pt for fairseq, .safetensors for rskip.

    :param dtype: number format of the stored floating-point tensors; None: unchanged.
    :raises ValueError: the suffix is unknown, or a value is out of the range of `dtype`.
    """
    path = Path(path)
    _, write = _format(path)
    if dtype is not None:
        checkpoint = Checkpoint(
            model=cast_floats(checkpoint.model, dtype),
            config=checkpoint.config,
            averaged_from=checkpoint.averaged_from,
            fairseq_state=checkpoint.fairseq_state,
        )
    write(path, checkpoint)


def check_suffix(path: str | os.PathLike[str]) -> None:
    """:raises ValueError: the suffix of the file's name is not one of a checkpoint."""
    _format(Path(path))


def _format(path: Path) -> tuple[Callable[[Path], Checkpoint], Callable[[Path, Checkpoint], None]]:
    formats = {".pt": (read_fairseq, write_fairseq), ".safetensors": (read_safetensors, write_safetensors)}
    if path.suffix not in formats:
        raise ValueError(f"{path}: the name of a checkpoint ends in {' or '.join(formats)}")
    return formats[path.suffix]


def write_model(folder: Path, checkpoint: Checkpoint, *, dtype: torch.dtype | None = None) -> None:
    """Writes config.json and model.safetensors into a folder.

    :param dtype: as for `write_checkpoint`.
    """
    tensors = checkpoint.model if dtype is None else cast_floats(checkpoint.model, dtype)
    about = {"averaged_from": list(checkpoint.averaged_from)} if checkpoint.averaged_from else {}
    config = {"format": FORMATS[needs_newer_format(checkpoint.config)], **checkpoint.config, **about}
    folder.mkdir(parents=True, exist_ok=True)
    _save(folder / WEIGHTS, tensors, {"format": BESIDE})
    with atomic_file(folder / CONFIG) as temporary:
        temporary.write_text(json.dumps(config, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read_config(path: Path) -> dict[str, Any]:
    """The `Checkpoint.config` of a safetensors file, without reading its tensors.

    :raises FileNotFoundError, ValueError: as `read_safetensors`.
    """
    with _opened(path) as file:
        return _settings(path, file.metadata() or {})[0]


def checkpoint_sha256(path: Path) -> str:
    """Hexadecimal SHA-256 of a checkpoint's file, combined with that of config.json for published weights."""
    files = [path, *([path.with_name(CONFIG)] if path.name == WEIGHTS and path.with_name(CONFIG).is_file() else [])]
    sums = [sha256_file(file) for file in files]
    return sums[0] if len(sums) == 1 else hashlib.sha256("".join(sums).encode()).hexdigest()


def read_safetensors(path: Path) -> Checkpoint:
    """Reads a file that `write_safetensors` or `write_model` wrote. Tied names share one tensor again.

    :raises FileNotFoundError: the file, or config.json next to it, is missing.
    :raises ValueError: the file is damaged, not from rskip, or has the format of a later rskip.
    """
    with _opened(path) as file:
        metadata = file.metadata() or {}
        config, averaged_from = _settings(path, metadata)
        model = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    tied = convert(_parsed(path, metadata, "tied", "{}"), dict[str, str], name="tied", source=_damaged(path))
    for name, stored in tied.items():
        if stored not in model:
            raise ValueError(f"{_damaged(path)}: {name} is tied to {stored}, which is missing")
        model[name] = model[stored]
    return Checkpoint(model=check_tensors(model, source=str(path)), config=config, averaged_from=averaged_from)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except SafetensorError as error:
        raise ValueError(
            f"{path} can't be read as safetensors ({error}): it is truncated or damaged: get the complete file again"
        ) from error


def _settings(path: Path, metadata: Mapping[str, str]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """`Checkpoint.config` and `Checkpoint.averaged_from`, from the file itself or from config.json next to it."""
    _check_format(path, metadata.get("format"))
    if metadata.get("format") in WHOLE:
        source, config = _damaged(path), _parsed(path, metadata, "config", "{}")
        averaged_from = _parsed(path, metadata, "averaged_from", "[]")
    else:
        source = str(path.with_name(CONFIG))
        config = convert(read_json(path.with_name(CONFIG)), dict[str, Any], source=source)
        if (found := config.pop("format", FORMATS[0])) not in FORMATS:
            problem = f"has format {shown(found)}, but this rskip reads formats {' and '.join(map(str, FORMATS))}"
            raise SettingError("", problem, advice="install a newer rskip", source=source)
        averaged_from = config.pop("averaged_from", [])
    return check_config(config, source=source), convert(
        averaged_from, tuple[str, ...], name="averaged_from", source=source
    )


def _parsed(path: Path, metadata: Mapping[str, str], name: str, default: str) -> Any:
    return parse_json(metadata.get(name, default), source=f"{_damaged(path)}: {name}")


def _damaged(path: Path) -> str:
    return f"{path} has damaged metadata"


def write_safetensors(path: Path, checkpoint: Checkpoint) -> None:
    """Writes tensors and `config`, without fairseq's own state."""
    written = WHOLE[needs_newer_format(checkpoint.config)]
    metadata = {"format": written, "config": json.dumps(checkpoint.config, sort_keys=True)}
    if checkpoint.averaged_from:
        metadata["averaged_from"] = json.dumps(checkpoint.averaged_from)
    _save(path, checkpoint.model, metadata)


def _save(path: Path, model: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Writes the tensors. Tied ones are written once."""
    tied = tied_names(model)
    tensors = {name: _of_own_memory(tensor.detach()) for name, tensor in model.items() if name not in tied}
    of_ties = {"tied": json.dumps(tied, sort_keys=True)} if tied else {}
    with atomic_file(path) as temporary:
        try:
            save_file(tensors, temporary, metadata={**metadata, **of_ties})
            _sort_metadata(temporary)
        except SafetensorError as error:
            raise system_error(error, path) or OSError(f"could not write {path}: {error}") from error


def _of_own_memory(tensor: Tensor) -> Tensor:
    """The tensor, or a copy if it is a view of more memory, which safetensors refuses."""
    whole = tensor.is_contiguous() and tensor.untyped_storage().nbytes() == tensor.nbytes
    return tensor if whole else tensor.contiguous().clone()


def _sort_metadata(path: Path) -> None:
    """Sorts the metadata's keys, since the library writes them in random order."""
    with path.open("rb+") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        assert len(text) <= length
        file.seek(8)
        file.write(text.ljust(length))


def _check_format(path: Path, found: str | None) -> None:
    """Raises an error for files of other programs and of later versions of rskip.

    Image models published before "rskip-2" have no `format`. They are accepted if config.json is next to them.
    """
    beside = path.with_name(CONFIG)
    if found in WHOLE or (found in (None, BESIDE) and beside.is_file()):
        return
    if found == BESIDE:
        raise FileNotFoundError(f"{beside} is missing: {path.name} needs it")
    if found is not None and found.startswith("rskip-"):
        known = ", ".join(map(repr, sorted([*WHOLE, BESIDE])))
        raise ValueError(f"{path} has the format {found!r}, but this rskip reads {known}: install a newer rskip")
    raise ValueError(f"{path} is not a model of rskip: expected its metadata, or a {CONFIG} next to it")
