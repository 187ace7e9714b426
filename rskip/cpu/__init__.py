"""Inference on a CPU by kernels in C (docs/speed.md). If they are not compiled, PyTorch computes."""

from rskip.cpu.library import Library, find_library
from rskip.cpu.precision import PRECISIONS, set_precision
from rskip.cpu.search import Search
from rskip.cpu.tensors import native_library
from rskip.cpu.transformer import CpuTransformer, for_inference

__all__ = [
    "PRECISIONS", "CpuTransformer", "Library", "Search", "find_library", "for_inference", "native_library",
    "set_precision",
]  # fmt: skip
