"""Checks fairseq: compiler, requirements and active patches."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from rskip.machine.environment import installed_version
from rskip.machine.fairseq_setup import FAIRSEQ, compiler, missing_needs
from rskip.machine.findings import Findings
from rskip.settings.errors import did_you_mean

_DISABLE = "FAIRSEQ_COMPAT_DISABLE"


def check_compiler(findings: Findings) -> None:
    """Checks for the compiler that installing fairseq needs."""
    findings.show("C++ compiler", compiler() or "none (needed to install fairseq)")


def check_fairseq(findings: Findings, *, user_dir: str | None = None) -> None:
    """Checks fairseq, the start-up hook and the patches in a new process.

    :param user_dir: a folder, whose patches are checked too.
    """
    installed = installed_version("fairseq")
    findings.show("fairseq", installed or "not installed; to train with it, run `rskip setup-fairseq`")
    if installed is None:
        return
    if installed != FAIRSEQ:
        findings.wrong.append(
            f"fairseq {installed} is installed, but the patches are for {FAIRSEQ}: run rskip setup-fairseq"
        )
    if missing := missing_needs():
        findings.wrong.append(f"fairseq needs {', '.join(missing)}: run rskip setup-fairseq")
    process = subprocess.run(
        [sys.executable, "-m", "fairseq_compat.report", "rskip", *([user_dir] if user_dir else [])],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    if process.returncode:
        last = process.stderr.strip().rpartition("\n")[2]
        findings.wrong.append(
            f"the patches can't be checked ({last}): reinstall rskip"
        )
        return
    report = json.loads(process.stdout)
    findings.show("start-up hook", "runs in every process" if report["hook"] else "missing")
    if not report["hook"]:
        findings.wrong.append("the start-up hook, which patches fairseq, did not run: run rskip setup-fairseq")
    if "error" in report:
        findings.wrong.append(
            f"fairseq can't be imported ({' '.join(report['error'].split())}): run rskip setup-fairseq"
        )
    elif unknown := _unknown_patches(["all", *(patch["name"] for patch in report["patches"])]):
        findings.wrong.append(
            f"{_DISABLE} names unknown patches, which have no effect: {unknown}; for patches of a plug-in, give its "
            "folder with --user-dir"
        )
    for patch in report["patches"]:
        findings.show(f"  {patch['name']}", "active" if patch["active"] else "NOT active")
        if not patch["active"] and "error" not in report:
            findings.wrong.append(
                f"the patch {patch['name']} is not active, so: {patch['symptom']}; is {_DISABLE} set? "
                "Otherwise reinstall rskip"
            )


def _unknown_patches(known: list[str]) -> str:
    """The names in FAIRSEQ_COMPAT_DISABLE that aren't known, with suggestions."""
    given = [name.strip() for name in os.environ.get(_DISABLE, "").split(",")]
    return ", ".join(f"{name}{did_you_mean(name, known)}" for name in given if name and name not in known)
