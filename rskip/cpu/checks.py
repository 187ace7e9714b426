"""Checks for fast inference on this CPU."""

from __future__ import annotations

from rskip.cpu import find_library
from rskip.machine.extras import advice
from rskip.machine.findings import Findings
from rskip.settings.errors import SettingError

_INT8 = {0: "none on this processor", 64: "7-bit weights, as this processor has no VNNI", 127: "8-bit weights"}


def check_kernels(findings: Findings, *, pytorch: bool) -> None:
    """Reports the compiled kernels, and the number of weight bits that they multiply in an 8-bit model.

    :param pytorch: whether PyTorch can be imported. Otherwise nothing translates without the kernels.
    """
    try:
        found = find_library()
    except SettingError as error:
        findings.wrong.append(str(error))
        return
    if found.library is not None:
        findings.show("compiled kernels", f"with {found.library.instructions} instructions")
        findings.show("int8 on the CPU", _INT8[found.library.largest_weight])
        return
    findings.show("compiled kernels", "none")
    if pytorch:
        findings.notes.append(f"translation uses PyTorch without the compiled kernels: {found.problem}")
    else:
        remedies = f"{found.problem}; or {advice('torch')}"
        findings.wrong.append(f"translation needs the compiled kernels or PyTorch: {remedies}")
