"""Installs fairseq 0.12.2: what it requires, the pip commands, and the start-up hook of its patches."""

from __future__ import annotations

import importlib.util
import os
import shutil
import site
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

import fairseq_compat
from rskip.extras import package_of, requirements
from rskip.machine.environment import constraints_file, installed_version

FAIRSEQ = "0.12.2"
COMPILERS = ("g++", "c++", "clang++")
HOOK = Path(fairseq_compat.__file__).parent / "site_files"


def is_installed() -> bool:
    """True if fairseq 0.12.2 and its requirements are installed."""
    return installed_version("fairseq") == FAIRSEQ and not missing_needs()


def missing_needs() -> list[str]:
    """The missing requirements of the extra `fairseq`."""
    return [each for each in requirements("fairseq") if installed_version(package_of(each)) is None]


def site_folder() -> Path:
    """The folder of the start-up hook: that of fairseq, or of this environment if fairseq is outside it."""
    found = Path(str(metadata.distribution("fairseq").locate_file("")))
    folders = [Path(folder) for folder in (*site.getsitepackages(), site.getusersitepackages())]
    return found if found in folders else Path(sysconfig.get_path("purelib"))


def hook_is_installed() -> bool:
    """True if each Python process of this environment runs the current start-up hook. Needs fairseq."""
    files = [(path, site_folder() / path.name) for path in HOOK.iterdir()]
    return all(path.is_file() and path.read_bytes() == ours.read_bytes() for ours, path in files)


def install_hook() -> None:
    """Copies the start-up hook and lists its files among fairseq's, so that pip removes them together."""
    folder = site_folder()
    for path in sorted(HOOK.iterdir()):
        partial = folder / f"{path.name}.partial"  # processes that start at this moment read .pth files
        shutil.copyfile(path, partial)
        partial.replace(folder / path.name)
    records = [Path(str(path.locate())) for path in metadata.files("fairseq") or [] if path.name == "RECORD"]
    for record in records:
        if record.parent.parent == folder:
            lines = record.read_text("utf-8").splitlines()
            lines += [f"{path.name},," for path in sorted(HOOK.iterdir()) if f"{path.name},," not in lines]
            record.write_text("\n".join(lines) + "\n", "utf-8")


def compiler() -> str | None:
    """The path of the C++ compiler: $CXX, or the first of g++, c++ and clang++ on the PATH."""
    names = [*os.environ.get("CXX", "").split()[:1], *COMPILERS]
    return next(filter(None, map(shutil.which, names)), None)


def check_tools() -> None:
    """Raises an error if a tool is missing, before anything is downloaded."""
    header = Path(sysconfig.get_path("include"), "Python.h")
    for found, missing in (
        (compiler(), "fairseq needs a C++ compiler; none of g++, c++, clang++ is on the PATH: install one "
         "(Debian: apt-get install g++, Fedora: dnf install gcc-c++, macOS: xcode-select --install)"),
        (header.exists(), f"fairseq needs Python's header files, and {header} is missing: install them "
         "(Debian, Ubuntu: apt-get install python3-dev; Fedora: dnf install python3-devel)"),
        (importlib.util.find_spec("pip"),
         f"pip is missing from {sys.prefix}: run `{sys.executable} -m ensurepip` first"),
    ):  # fmt: skip
        if not found:
            raise FileNotFoundError(missing)


@dataclass(frozen=True)
class Step:
    """A step of the installation.

    :param line: a description for the user.
    :param command: the command of pip.
    :param environment: environment variables in addition to this process's.
    """

    line: str
    command: list[str]
    environment: Mapping[str, str] = field(default_factory=dict)


def installation_steps() -> list[Step]:
    """The steps: the missing requirements of fairseq, then fairseq without its list of requirements.

    pip refuses the metadata of that list.
    """
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    constraints = constraints_file().as_uri()
    return [
        Step("installing what fairseq needs", [*pip, *requirements("fairseq")]),
        Step(
            f"installing fairseq {FAIRSEQ}; compiling it takes about half a minute",
            [*pip, "--no-deps", f"fairseq=={FAIRSEQ}"],
            # pip compiles fairseq in a separate environment. Older pips use the first variable there, newer the second.
            {"PIP_CONSTRAINT": constraints, "PIP_BUILD_CONSTRAINT": constraints},
        ),
    ]
