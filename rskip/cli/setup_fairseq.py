"""Install fairseq 0.12.2, its requirements, and the start-up hook that patches it, in the current environment.

pip refuses the metadata of fairseq's list of requirements. The command therefore installs fairseq without the list, and
its requirements separately. It compiles fairseq, which needs a C++ compiler and takes about half a minute."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

from rskip.machine import fairseq_setup as setup
from rskip.machine.fairseq_setup import check_tools, installation_steps


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command has no arguments."""


def run(args: argparse.Namespace) -> int:
    """Checks the tools and installs what is missing. Returns pip's exit status if pip fails."""
    status = 0
    if setup.is_installed():
        print(f"fairseq {setup.FAIRSEQ} is installed")
    else:
        status = _install()
    if not status and not setup.hook_is_installed():
        setup.install_hook()
        print(f"installed fairseq's start-up hook in {setup.site_folder()}")
    return status


def _install() -> int:
    """Returns pip's exit status."""
    check_tools()
    for step in installation_steps():
        print(step.line, flush=True)
        environment = {**os.environ, **step.environment}
        status = subprocess.run(step.command, env=environment, stdin=subprocess.DEVNULL).returncode
        if status:
            print(f"rskip setup-fairseq: error: {' '.join(step.command[1:])} failed (see above)", file=sys.stderr)
            return status
    return 0
