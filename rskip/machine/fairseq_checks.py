"""Checks of fairseq: compiler, requirements and active patches."""

from __future__ import annotations

import json
import subprocess
import sys

from rskip.machine.environment import installed_version
from rskip.machine.fairseq_setup import FAIRSEQ, compiler, missing_needs
from rskip.machine.findings import Findings


def check_compiler(findings: Findings) -> None:
    """The compiler that installing fairseq needs."""
    findings.show("C++ compiler", compiler() or "none (needed to install fairseq)")


def check_fairseq(findings: Findings) -> None:
    """fairseq, the start-up hook and the patches, seen from a fresh process that nobody prepared."""
    installed = installed_version("fairseq")
    findings.show("fairseq", installed or "not installed; training with it needs `rskip setup-fairseq`")
    if installed is None:
        return
    if installed != FAIRSEQ:
        findings.wrong.append(
            f"fairseq {installed} is installed, the patches are for {FAIRSEQ}: rskip setup-fairseq"
        )
    if missing := missing_needs():
        findings.wrong.append(f"fairseq needs {', '.join(missing)}: rskip setup-fairseq")
    process = subprocess.run(
        [sys.executable, "-m", "fairseq_compat.report", "rskip"],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    if process.returncode:
        last = process.stderr.strip().rpartition("\n")[2]
        findings.wrong.append(
            f"the patches can't be examined ({last}): install rskip again"
        )
        return
    report = json.loads(process.stdout)
    findings.show("start-up hook", "runs in every process" if report["hook"] else "missing")
    if not report["hook"]:
        findings.wrong.append("the start-up hook, which patches fairseq, did not run: rskip setup-fairseq")
    if "error" in report:
        findings.wrong.append(
            f"fairseq can't be imported ({' '.join(report['error'].split())}): rskip setup-fairseq"
        )
    for patch in report["patches"]:
        findings.show(f"  {patch['name']}", "active" if patch["active"] else "NOT active")
        if not patch["active"] and "error" not in report:
            findings.wrong.append(
                f"the patch {patch['name']} is not active, so: {patch['symptom']}; is FAIRSEQ_COMPAT_DISABLE set? "
                "Otherwise install rskip again"
            )
