"""Kernels in C for what PyTorch computes slowly (docs/speed.md); where there are none PyTorch serves."""

from rskip.cpu.library import find_library, native_library

__all__ = ["find_library", "native_library"]
