"""Checkpoints' files: fairseq's .pt, or safetensors, as the name says.

A safetensors file holds tensors, and metadata that builds the model again; no pickle, no machine paths. Metadata:
`format` ("rskip-1"), `config` (JSON, see Checkpoint.config), `tied` (JSON: name to the name that its tensor is stored
under), `averaged_from` (JSON: file names).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from rskip.checkpoint.checkpoint import Checkpoint, cast_floats, check_config, check_tensors, tied_names
from rskip.checkpoint.fairseq_file import read_fairseq, write_fairseq
from rskip.files.whole import atomic_file
from rskip.machine.torch_errors import system_error
from rskip.settings.check import convert
from rskip.settings.text import parse_json

FORMAT = "rskip-1"


def read_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Reads a checkpoint onto the CPU: fairseq's from a .pt file, ours from a .safetensors file.

    :raises FileNotFoundError: no file there.
    :raises ValueError: another suffix, or a file that is not what its suffix says.
    """
    path = Path(path)
    read, _ = _format(path)
    if not path.is_file():
        raise FileNotFoundError(f"no checkpoint file {path}")
    return read(path)


def write_checkpoint(
    path: str | os.PathLike[str], checkpoint: Checkpoint, *, dtype: torch.dtype | None = None
) -> None:
    """Writes a checkpoint whole or not at all: .pt for fairseq, .safetensors to keep and to publish.

    :param dtype: floating-point tensors are stored so; None: as they are.
    :raises ValueError: another suffix, or a value out of the range of `dtype`.
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
    """:raises ValueError: the file's name says no format that a checkpoint can have."""
    _format(Path(path))


def _format(path: Path) -> tuple[Callable[[Path], Checkpoint], Callable[[Path, Checkpoint], None]]:
    formats = {".pt": (read_fairseq, write_fairseq), ".safetensors": (read_safetensors, write_safetensors)}
    if path.suffix not in formats:
        raise ValueError(f"{path}: the name of a checkpoint ends in {' or '.join(formats)}")
    return formats[path.suffix]


def read_safetensors(path: Path) -> Checkpoint:
    """Reads what `write_safetensors` wrote; tied names are one tensor again.

    :raises FileNotFoundError: no file there.
    :raises ValueError: damaged, not from rskip, or of a format that a later rskip writes.
    """
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            _check_format(path, metadata.get("format"))
            model = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(
            f"{path} can't be read as safetensors ({error}): it is cut off or damaged, get the whole file again"
        ) from error
    source = f"{path} has damaged metadata"
    content = {
        name: parse_json(metadata.get(name, default), source=f"{source}: {name}")
        for name, default in (("config", "{}"), ("tied", "{}"), ("averaged_from", "[]"))
    }
    config = check_config(content["config"], source=source)
    tied = convert(content["tied"], dict[str, str], name="tied", source=source)
    for name, stored in tied.items():
        if stored not in model:
            raise ValueError(f"{source}: {name} is tied to {stored}, which is not there")
        model[name] = model[stored]
    averaged_from = convert(content["averaged_from"], tuple[str, ...], name="averaged_from", source=source)
    return Checkpoint(model=check_tensors(model, source=str(path)), config=config, averaged_from=averaged_from)


def write_safetensors(path: Path, checkpoint: Checkpoint) -> None:
    """Writes tensors and `config`; of fairseq's own state nothing is kept."""
    tied = tied_names(checkpoint.model)
    metadata = {"format": FORMAT, "config": json.dumps(checkpoint.config, sort_keys=True)}
    if tied:
        metadata["tied"] = json.dumps(tied, sort_keys=True)
    if checkpoint.averaged_from:
        metadata["averaged_from"] = json.dumps(checkpoint.averaged_from)
    tensors = {
        name: tensor.detach().contiguous().clone()
        for name, tensor in checkpoint.model.items()
        if name not in tied
    }
    with atomic_file(path) as temporary:
        try:
            save_file(tensors, temporary, metadata=metadata)
            _sort_metadata(temporary)
        except SafetensorError as error:
            raise system_error(error, path) or OSError(f"could not write {path}: {error}") from error


def _sort_metadata(path: Path) -> None:
    """Puts the metadata's keys in order: the library writes them in another one each time."""
    with path.open("rb+") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        assert len(text) <= length
        file.seek(8)
        file.write(text.ljust(length))


def _check_format(path: Path, found: str | None) -> None:
    if found == FORMAT:
        return
    if found is not None and found.startswith("rskip-"):
        raise ValueError(
            f"{path} has the format {found!r}, but this rskip reads {FORMAT!r}: upgrade rskip "
            "(pip install --upgrade rskip)"
        )
    raise ValueError(f"{path} is no translation model of rskip: its metadata has no format {FORMAT!r}")
