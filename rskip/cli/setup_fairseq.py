"""Install fairseq 0.12.2, and what it really needs, into the current environment.

fairseq's own list of requirements has metadata that pip refuses, so fairseq is installed without it and its
real needs beside it. fairseq is compiled, which needs a C++ compiler and takes about half a minute."""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

FAIRSEQ = "0.12.2"
COMPILERS = ("g++", "c++", "clang++")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """It has none."""


def run(args: argparse.Namespace) -> int:
    """Checks the tools, installs what is missing; pip's exit status where pip fails."""
    if is_installed():
        print(f"fairseq {FAIRSEQ} is installed")
        return 0
    check_tools()
    return install()


def is_installed() -> bool:
    """True if fairseq 0.12.2 and its real needs are there."""
    if version("fairseq") != FAIRSEQ:
        return False
    return all(version(package) is not None for package in real_needs())


def version(package: str) -> str | None:
    """The installed version of a package, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def real_needs() -> dict[str, str]:
    """What fairseq really needs, by rskip's extra `fairseq`: package and requirement."""
    requirements = (line.partition(";") for line in metadata.requires("rskip") or [])
    needs = [
        need.strip() for need, _, marker in requirements if re.search("""extra == ["']fairseq""", marker)
    ]
    return {re.split(r"[^\w.-]", need, maxsplit=1)[0]: need for need in needs}


def compiler() -> str | None:
    """Path of the C++ compiler: $CXX, or the first of g++, c++ and clang++ that there is."""
    names = [*os.environ.get("CXX", "").split()[:1], *COMPILERS]
    return next(filter(None, map(shutil.which, names)), None)


def check_tools() -> None:
    """Raises where a tool is missing, before anything is downloaded."""
    if compiler() is None:
        raise FileNotFoundError(
            "fairseq needs a C++ compiler; none of g++, c++, clang++ is on the PATH: install one "
            "(Debian: apt-get install g++, Fedora: dnf install gcc-c++, macOS: xcode-select --install)"
        )
    header = Path(sysconfig.get_path("include"), "Python.h")
    if not header.exists():
        raise FileNotFoundError(
            f"fairseq needs Python's header files, and {header} is missing: install them "
            "(Debian, Ubuntu: apt-get install python3-dev; Fedora: dnf install python3-devel)"
        )
    if importlib.util.find_spec("pip") is None:
        raise FileNotFoundError(
            f"pip is missing from {sys.prefix}: run `{sys.executable} -m ensurepip` first"
        )


def install() -> int:
    """Runs pip: first fairseq's needs, as far as they are missing, then fairseq; the exit status."""
    from rskip.machine.environment import constraints_file

    # fairseq is compiled in an environment of its own: older pips heed the first there, newer ones the second
    constraints = constraints_file().as_uri()
    build_environment = {"PIP_CONSTRAINT": constraints, "PIP_BUILD_CONSTRAINT": constraints}
    print("installing what fairseq needs", flush=True)
    status = pip_install(*real_needs().values())
    if status:
        return status
    print(f"installing fairseq {FAIRSEQ}; compiling it takes about half a minute", flush=True)
    return pip_install("--no-deps", f"fairseq=={FAIRSEQ}", environment=build_environment)


def pip_install(*arguments: str, environment: Mapping[str, str] | None = None) -> int:
    """Runs `pip install` in this environment with more environment variables; its exit status."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments]
    status = subprocess.run(
        command, env={**os.environ, **(environment or {})}, stdin=subprocess.DEVNULL
    ).returncode
    if status:
        print(f"rskip setup-fairseq: error: {' '.join(command[1:])} failed, see above", file=sys.stderr)
    return status
