"""What `rskip doctor` says of inference on this CPU."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from rskip.cpu import checks, library
from rskip.cpu.library import Found
from rskip.machine.findings import Findings


def findings(*, pytorch: bool) -> Findings:
    found = Findings()
    checks.check_kernels(found, pytorch=pytorch)
    return found


@pytest.mark.parametrize("pytorch", [True, False])
def test_kernels_and_their_int8_are_shown(monkeypatch, pytorch):
    for largest, words in ((127, "8-bit weights"), (64, "7-bit weights, as"), (0, "none")):
        kernels = SimpleNamespace(instructions="AVX2", largest_weight=largest)
        monkeypatch.setattr(checks, "find_library", lambda kernels=kernels: Found(kernels))
        found = findings(pytorch=pytorch)
        assert found.lines[0] == "compiled kernels     with AVX2 instructions"
        assert found.lines[1].startswith(f"int8 on the CPU      {words}")
        assert found.wrong == found.notes == []


def test_missing_kernels_are_wrong_only_without_pytorch(monkeypatch):
    monkeypatch.setattr(checks, "find_library", lambda: Found(None, "RSKIP_NATIVE=off"))
    found = findings(pytorch=True)
    assert found.wrong == []
    assert found.notes == ["translation uses PyTorch without the compiled kernels: RSKIP_NATIVE=off"]
    found = findings(pytorch=False)
    (wrong,) = found.wrong
    beginning = "translation needs the compiled kernels or PyTorch: RSKIP_NATIVE=off; or install the extra torch with "
    assert wrong.startswith(beginning)
    assert found.lines == ["compiled kernels     none"]


def test_an_unknown_instruction_set_is_wrong_and_the_report_goes_on(monkeypatch):
    monkeypatch.setattr(checks, "find_library", library.find_library.__wrapped__)
    monkeypatch.setenv("RSKIP_NATIVE", "foo")
    (wrong,) = findings(pytorch=True).wrong
    assert wrong.startswith("RSKIP_NATIVE is 'foo': expected one of off, plain")
