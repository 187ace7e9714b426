"""Reads, writes, averages and converts checkpoints: fairseq's .pt and safetensors, with fairseq's names or ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rskip.machine.lazy import imported_on_use

if TYPE_CHECKING:
    from rskip.checkpoint.average import average_checkpoints, average_to_file, best_checkpoints, last_checkpoints
    from rskip.checkpoint.checkpoint import Checkpoint
    from rskip.checkpoint.files import read_checkpoint, write_checkpoint, write_model
    from rskip.checkpoint.stock import from_stock, stock_connection, to_stock
    from rskip.checkpoint.transformer import build_transformer

__all__ = [
    "Checkpoint",
    "average_checkpoints",
    "average_to_file",
    "best_checkpoints",
    "build_transformer",
    "from_stock",
    "last_checkpoints",
    "read_checkpoint",
    "stock_connection",
    "to_stock",
    "write_checkpoint",
    "write_model",
]

_MEMBERS = {
    "average": ("average_checkpoints", "average_to_file", "best_checkpoints", "last_checkpoints"),
    "checkpoint": ("Checkpoint",),
    "files": ("read_checkpoint", "write_checkpoint", "write_model"),
    "stock": ("from_stock", "stock_connection", "to_stock"),
    "transformer": ("build_transformer",),
}
__getattr__ = imported_on_use(__name__, {name: module for module, names in _MEMBERS.items() for name in names})
