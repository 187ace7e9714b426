"""Reads the description of a folder of ONNX graphs, onnx.json. The module does not import torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Literal

from rskip.files.checksum import file_difference
from rskip.settings.check import Checked, convert
from rskip.settings.errors import shown
from rskip.settings.kinds import Index, Language, Layers, Positions, Size
from rskip.settings.text import read_json

ONNX_FILE = "onnx.json"
FORMAT = 1  # version of the folder's format
ENCODER, STEP = "encoder.onnx", "step.onnx"


@dataclass(frozen=True, kw_only=True)
class OnnxSettings(Checked):
    """The description of the graphs for a runtime: the content of onnx.json without `format`.

    opset: version of ONNX's standard operators. No others are used.
    text: "pipeline" (the folder text/), or "tokens" separated by spaces.
    layers, heads, head_features: L, H and D of the decoder.
    max_source_positions, max_target_positions: maximum lengths, including ends; null: no limit.
    trained_source_positions: maximum source length on which fairseq would have trained.
    first_position: position of the first step, which increases by one per step.
    start_index: the token before the first.
    files: SHA-256 checksum of every other file, by its path in the folder.
    """

    opset: Size
    precision: Literal["float32", "int8"]
    source_language: Language
    target_language: Language
    text: Literal["pipeline", "tokens"]
    encoder_connection: str
    decoder_connection: str
    source_vocabulary: Size
    target_vocabulary: Size
    layers: Layers
    heads: Size
    head_features: Size
    max_source_positions: Positions | None
    max_target_positions: Positions | None
    trained_source_positions: Positions
    first_position: Index
    padding_index: Index
    start_index: Index
    end_index: Index
    unknown_index: Index
    files: dict[str, str]


def read_settings(file: Path) -> OnnxSettings:
    """Reads a folder's settings, and verifies the files that they name.

    :param file: the folder's onnx.json.
    """
    values = read_json(file)
    if isinstance(values, dict) and (written := values.pop("format", None)) != FORMAT:
        raise ValueError(f"{file} has the format {written!r}, but this rskip reads {FORMAT}: export the model again")
    settings = convert(values, OnnxSettings, source=str(file))
    for name, sha256 in settings.files.items():
        if PurePath(name).is_absolute() or ".." in PurePath(name).parts:
            raise ValueError(f"{file}: files: {shown(name)} is not in the folder: export the model again")
        if difference := file_difference(file.parent / name, sha256=sha256):
            raise ValueError(f"{file.parent / name} {difference} by {ONNX_FILE}: export the model again")
    return settings
