"""Reads, writes, averages and converts checkpoints: fairseq's .pt and safetensors, with fairseq's names or ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rskip.machine.lazy import imported_on_use

if TYPE_CHECKING:
    from rskip.checkpoint.average import (
        average_checkpoints,
        average_to_file,
        best_checkpoints,
        final_checkpoints,
        last_checkpoints,
    )
    from rskip.checkpoint.checkpoint import Checkpoint
    from rskip.checkpoint.files import read_checkpoint, write_checkpoint, write_model
    from rskip.checkpoint.language_model import (
        build_language_model,
        language_model_checkpoint,
        read_language_model,
        untrained_language_model,
    )
    from rskip.checkpoint.stock import to_stock
    from rskip.checkpoint.stock_names import from_stock, stock_connection
    from rskip.checkpoint.transformer import build_transformer

__all__ = [
    "Checkpoint",
    "average_checkpoints",
    "average_to_file",
    "best_checkpoints",
    "build_language_model",
    "build_transformer",
    "final_checkpoints",
    "from_stock",
    "language_model_checkpoint",
    "last_checkpoints",
    "read_checkpoint",
    "read_language_model",
    "stock_connection",
    "to_stock",
    "untrained_language_model",
    "write_checkpoint",
    "write_model",
]

_MEMBERS = {
    "average": (
        "average_checkpoints", "average_to_file", "best_checkpoints", "final_checkpoints", "last_checkpoints",
    ),
    "checkpoint": ("Checkpoint",),
    "files": ("read_checkpoint", "write_checkpoint", "write_model"),
    "language_model": (
        "build_language_model", "language_model_checkpoint", "read_language_model", "untrained_language_model",
    ),
    "stock": ("to_stock",),
    "stock_names": ("from_stock", "stock_connection"),
    "transformer": ("build_transformer",),
}  # fmt: skip
__getattr__ = imported_on_use(__name__, {name: module for module, names in _MEMBERS.items() for name in names})
