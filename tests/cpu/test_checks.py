"""What `rskip doctor` says of inference on this CPU."""

from __future__ import annotations

from rskip.cpu import checks
from rskip.machine.findings import Findings


def test_what_int8_is_here(monkeypatch):
    for largest, words in ((127, "8-bit weights"), (64, "7-bit weights, as"), (0, "none")):
        monkeypatch.setattr(checks, "largest_int8_weight", lambda largest=largest: largest)
        findings = Findings()
        checks.check_int8(findings)
        assert findings.lines[0].startswith(f"int8 on the CPU      {words}")
