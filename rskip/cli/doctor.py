"""Check the environment: installed packages, active patches of fairseq, and problems with their fixes.

Exit status: 0 if nothing is wrong, otherwise 1."""

from __future__ import annotations

import argparse

from rskip.cpu.checks import check_kernels
from rskip.machine import checks, fairseq_checks
from rskip.machine.findings import Findings

CHECKS_USER_DIR = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command has no arguments."""


def run(args: argparse.Namespace) -> int:
    """Runs all checks and prints their results."""
    findings = examine(args.user_dir)
    print("\n".join(findings.lines))
    for title, entries in (("worth knowing", findings.notes), ("wrong", findings.wrong)):
        if entries:
            print(f"\n{title}:")
            print("\n".join(f"  - {entry}" for entry in entries))
    if not findings.wrong:
        print("\nnothing is wrong")
    return 1 if findings.wrong else 0


def examine(user_dir: str | None) -> Findings:
    """Runs all checks, in the order in which they are printed.

    :param user_dir: the value of --user-dir.
    """
    findings = Findings()
    checks.check_machine(findings)
    checks.check_variables(findings)
    folder = checks.check_user_dir(findings, user_dir)
    checks.check_packages(findings)
    checks.check_extras(findings)
    check_kernels(findings, pytorch=checks.check_pytorch(findings))
    fairseq_checks.check_compiler(findings)
    fairseq_checks.check_fairseq(findings, user_dir=folder)
    checks.check_cache(findings)
    return findings
