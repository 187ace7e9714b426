"""Reads the settings of our models, without their tensors. The module does not import torch.

A safetensors file has tensors and metadata: `format`, `tied` (JSON: maps a name to the name that stores its tensor),
and `crc32` (JSON: the checksum of each stored tensor and of the other metadata; files of earlier versions lack it). In
the format "rskip-1" the metadata also has `config` (JSON, see Checkpoint.config) and `averaged_from` (JSON: file
names), so one file is a complete model. In the format "rskip-2" they are in config.json next to the file:

    config.json         `format`, `task`, `model` (the settings of the model), and the task's own values
    model.safetensors   the tensors
    ...                 the task's further files, such as dictionaries

Every task publishes its models as such a folder, which contains neither pickles nor paths of a machine.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from safetensors import SafetensorError, safe_open

from rskip.checkpoint.checkpoint import check_config
from rskip.files.checksum import sha256_file
from rskip.settings.check import convert
from rskip.settings.errors import SettingError
from rskip.settings.text import parse_json, read_json

CONFIG, WEIGHTS = "config.json", "model.safetensors"
WHOLE, BESIDE = "rskip-1", "rskip-2"  # formats of safetensors files: config inside, or in config.json
FORMAT = 1  # of config.json
_OF_METADATA = "__metadata__"  # the name of their checksum, which no tensor can have
OF_EVERY_TASK = ("task", "arch", "source_lang", "target_lang")  # keys of every `Checkpoint.config`, with `model`


@dataclass(frozen=True, kw_only=True)
class Header:
    """What a safetensors file says of its model before the tensors.

    :param config: see `Checkpoint.config`.
    :param averaged_from: see `Checkpoint.averaged_from`.
    :param tied: maps a name to the name that stores its tensor.
    :param shapes: the shape of each tensor, also of the tied ones.
    :param sums: see `sums_of`.
    """

    config: dict[str, Any]
    averaged_from: tuple[str, ...]
    tied: dict[str, str]
    shapes: dict[str, tuple[int, ...]]
    sums: dict[str, int]


def read_header(path: Path) -> Header:
    """Reads the header of a safetensors file."""
    with opened(path, framework="np") as file:
        return header_of(file, path)


def read_config(path: Path) -> dict[str, Any]:
    """The `Checkpoint.config` of a safetensors file. Raises the errors of `read_header`."""
    return read_header(path).config


def checkpoint_sha256(path: Path) -> str:
    """Hexadecimal SHA-256 of a checkpoint's file, combined with that of config.json for published weights."""
    files = [path, *([path.with_name(CONFIG)] if path.name == WEIGHTS and path.with_name(CONFIG).is_file() else [])]
    sums = [sha256_file(file) for file in files]
    return sums[0] if len(sums) == 1 else hashlib.sha256("".join(sums).encode()).hexdigest()


@contextmanager
def opened(path: Path, *, framework: Literal["np", "pt"]) -> Iterator[Any]:
    """The open safetensors file.

    :param framework: type of the tensors that it gives: NumPy or PyTorch.
    """
    try:
        with safe_open(path, framework=framework) as file:
            yield file
    except SafetensorError as error:
        raise damaged(path, str(error)) from error


def damaged(path: Path, problem: str) -> ValueError:
    """The error for a file that is not safetensors."""
    return ValueError(
        f"{path} can't be read as safetensors ({problem}): it is truncated or damaged: get the complete file again"
    )


def header_of(file: Any, path: Path) -> Header:
    """The header of an open file. Raises the errors of `read_header`."""
    metadata = file.metadata() or {}
    config, averaged_from = _settings(path, metadata)
    shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    tied = convert(_parsed(path, metadata, "tied", "{}"), dict[str, str], name="tied", source=_damaged(path))
    for name, stored in tied.items():
        if stored not in shapes or stored in tied:
            raise ValueError(f"{_damaged(path)}: {name} is tied to {stored}, which is missing")
        shapes[name] = shapes[stored]
    sums = sums_of(metadata, path=path)
    return Header(config=config, averaged_from=averaged_from, tied=tied, shapes=shapes, sums=sums)


def sums_of(metadata: Mapping[str, str], *, path: Path) -> dict[str, int]:
    """CRC-32 of each stored tensor; empty for a file of an earlier version or of another program."""
    sums = convert(_parsed(path, metadata, "crc32", "{}"), dict[str, int], name="crc32", source=_damaged(path))
    check_sum(sums, _OF_METADATA, _metadata_sum(metadata), path=path)
    return sums


def with_sums(metadata: Mapping[str, str], sums: Mapping[str, int]) -> dict[str, str]:
    """The metadata with `crc32`, for the CRC-32 of each tensor."""
    return {**metadata, "crc32": json.dumps({**sums, _OF_METADATA: _metadata_sum(metadata)}, sort_keys=True)}


def _metadata_sum(metadata: Mapping[str, str]) -> int:
    return zlib.crc32(json.dumps({**metadata, "crc32": ""}, sort_keys=True).encode())


def check_sum(sums: Mapping[str, int], name: str, found: int, *, path: Path) -> None:
    """Compares the CRC-32 of a stored tensor with that of `Header.sums`."""
    if sums.get(name, found) != found:
        advice = "get it again (if you changed it yourself, remove crc32 from its metadata)"
        raise ValueError(f"{path}: the checksum of {name} is wrong, so the file was damaged: {advice}")


def _settings(path: Path, metadata: Mapping[str, str]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """`Checkpoint.config` and `Checkpoint.averaged_from`, from the file itself or from config.json next to it."""
    _check_format(path, metadata.get("format"))
    if metadata.get("format") == WHOLE:
        source, config = _damaged(path), _parsed(path, metadata, "config", "{}")
        averaged_from = _parsed(path, metadata, "averaged_from", "[]")
    else:
        source = str(path.with_name(CONFIG))
        config = convert(read_json(path.with_name(CONFIG)), dict[str, Any], source=source)
        if (found := config.pop("format", FORMAT)) != FORMAT:
            raise SettingError.of_value("format", found, str(FORMAT), advice="install a newer rskip", source=source)
        averaged_from = config.pop("averaged_from", [])
    return check_config(config, source=source), convert(
        averaged_from, tuple[str, ...], name="averaged_from", source=source
    )


def _parsed(path: Path, metadata: Mapping[str, str], name: str, default: str) -> Any:
    return parse_json(metadata.get(name, default), source=f"{_damaged(path)}: {name}")


def _damaged(path: Path) -> str:
    return f"{path} has damaged metadata"


def _check_format(path: Path, found: str | None) -> None:
    """Raises an error for files of other programs and of later versions of rskip.

    Image models published before "rskip-2" have no `format`. They are accepted if config.json is next to them.
    """
    if found in (WHOLE, BESIDE) or (found is None and path.with_name(CONFIG).is_file()):
        return
    problem = f"{path} has the format {found!r}, but this rskip reads {WHOLE} and {BESIDE}"
    raise ValueError(f"{problem}: expected a model of rskip, or {CONFIG} next to it; or install a newer rskip")
