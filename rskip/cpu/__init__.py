"""Inference on a CPU by kernels in C (docs/speed.md). If they are not compiled, PyTorch computes.

A model that the kernels compute completely needs no PyTorch (`rskip.generation.runtime`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rskip.machine.lazy import imported_on_use

if TYPE_CHECKING:
    from rskip.cpu.library import Library, find_library, native_library
    from rskip.cpu.precision import PRECISIONS, set_precision
    from rskip.cpu.transformer import CpuTransformer, for_inference

__all__ = [
    "PRECISIONS", "CpuTransformer", "Library", "find_library", "for_inference", "native_library", "set_precision",
]  # fmt: skip

_MEMBERS = {
    "library": ("Library", "find_library", "native_library"), "precision": ("PRECISIONS", "set_precision"),
    "transformer": ("CpuTransformer", "for_inference"),
}  # fmt: skip
__getattr__ = imported_on_use(__name__, {name: module for module, names in _MEMBERS.items() for name in names})
