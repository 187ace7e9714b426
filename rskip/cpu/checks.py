"""Checks for fast inference on this CPU."""

from __future__ import annotations

from rskip.cpu import find_library
from rskip.cpu.int8 import largest_int8_weight
from rskip.machine.findings import Findings


def check_kernels(findings: Findings) -> None:
    """Reports the compiled kernels, which speed up translation on a CPU."""
    found = find_library()
    if found.library is None:
        findings.show("compiled kernels", "none")
        findings.notes.append(f"translation uses PyTorch without the compiled kernels: {found.problem}")
    else:
        findings.show("compiled kernels", f"with {found.library.instructions} instructions")


def check_int8(findings: Findings) -> None:
    """Reports the number of weight bits that this processor multiplies in an 8-bit model."""
    bits = {0: "none on this processor", 64: "7-bit weights, as this processor has no VNNI", 127: "8-bit weights"}
    findings.show("int8 on the CPU", bits[largest_int8_weight()])
