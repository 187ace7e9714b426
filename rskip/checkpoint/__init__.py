"""Reads, writes, averages and converts checkpoints: fairseq's .pt and safetensors, with fairseq's names or ours."""

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
