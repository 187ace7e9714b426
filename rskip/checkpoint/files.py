"""Reads and writes files of checkpoints (fairseq's .pt or safetensors, by suffix) and folders of published models.

`config_file` describes the formats, and reads a model's settings without its tensors.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from rskip.checkpoint.checkpoint import Checkpoint
from rskip.checkpoint.config_file import BESIDE, CONFIG, FORMAT, WEIGHTS, WHOLE, header_of, opened, with_sums
from rskip.checkpoint.fairseq_file import read_fairseq, write_fairseq
from rskip.checkpoint.tensors import cast_floats, read_tensors, tensor_sum, tied_names
from rskip.files.whole import atomic_file
from rskip.machine.torch_errors import system_error


def read_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Reads a checkpoint of fairseq from a .pt file, or ours from a .safetensors file, to the CPU.

    :raises FileNotFoundError: the file does not exist.
    :raises ValueError: the suffix is unknown, or the file does not have the format of its suffix.
    """
    path = Path(path)
    read, _ = _format(path)
    return read(path)


def write_checkpoint(path: str | os.PathLike[str], checkpoint: Checkpoint, *, dtype: torch.dtype | None = None) -> None:
    """Writes a checkpoint atomically: .pt for fairseq, .safetensors for rskip.

    :param dtype: number format of the stored floating-point tensors; None: unchanged.
    :raises ValueError: the suffix is unknown, or a value is out of the range of `dtype`.
    """
    path = Path(path)
    _, write = _format(path)
    if dtype is not None:
        checkpoint = replace(checkpoint, model=cast_floats(checkpoint.model, dtype))
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
    config = {"format": FORMAT, **checkpoint.config, **about}
    folder.mkdir(parents=True, exist_ok=True)
    save_tensors(folder / WEIGHTS, tensors, {"format": BESIDE})
    with atomic_file(folder / CONFIG) as temporary:
        temporary.write_text(json.dumps(config, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read_safetensors(path: Path) -> Checkpoint:
    """Reads a file that `write_safetensors` or `write_model` wrote. Tied names share one tensor again."""
    with opened(path, framework="pt") as file:
        header = header_of(file, path)
        model = read_tensors(file, header.sums, path=path)
    model |= {name: model[stored] for name, stored in header.tied.items()}
    return Checkpoint(model=model, config=header.config, averaged_from=header.averaged_from)


def write_safetensors(path: Path, checkpoint: Checkpoint) -> None:
    """Writes tensors and `config`, without fairseq's own state."""
    metadata = {"format": WHOLE, "config": json.dumps(checkpoint.config, sort_keys=True)}
    if checkpoint.averaged_from:
        metadata["averaged_from"] = json.dumps(checkpoint.averaged_from)
    save_tensors(path, checkpoint.model, metadata)


def save_tensors(path: Path, model: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Writes a safetensors file with checksums. Tied tensors are written once."""
    tied = tied_names(model)
    tensors = {name: _of_own_memory(tensor.detach()) for name, tensor in model.items() if name not in tied}
    metadata = {**metadata, **({"tied": json.dumps(tied, sort_keys=True)} if tied else {})}
    metadata = with_sums(metadata, {name: tensor_sum(tensor) for name, tensor in tensors.items()})
    with atomic_file(path) as temporary:
        try:
            save_file(tensors, temporary, metadata=metadata)
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
