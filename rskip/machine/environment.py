"""Describes the environment of a run (code, packages, machine, without its name or paths), and the tested versions."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, TypedDict

from rskip.machine.cores import available_cores
from rskip.settings.errors import SettingError

_PACKAGES = (
    "rskip",
    "torch",
    "torchvision",
    "fairseq",
    "numpy",
    "sacrebleu",
    "sacremoses",
    "subword-nmt",
    "sentencepiece",
    "num2words",
    "ctranslate2",
)
# Code that a run may use even if git doesn't track it.
_CODE = ("rskip/*.py", "rskip/*.[ch]", "fairseq_compat/*.py", "user_dir/*.py", "recipes/*.py")
_CONSTRAINT = re.compile(
    r'(?P<name>[\w.-]+)==(?P<version>[\w.+]+)(; python_version (?P<sign><|>=) "(?P<python>[\d.]+)")?'
)


class _Processor(TypedDict):
    cpu: str
    threads: int


class Machine(_Processor, total=False):
    """The machine in a run record, with the keys that rskip reads.

    gpu: the first GPU; None without a GPU. gpus: the number of GPUs that the run used; 1 if the key is missing.
    """

    gpu: str | None
    gpus: int


class _Commit(TypedDict):
    commit: str


class Git(_Commit, total=False):
    """The git checkout of the code. `dirty` is true if code or tracked files differ from the commit."""

    dirty: bool


def describe_environment() -> dict[str, Any]:
    """`git` (commit, and whether code or tracked files differ from it), `packages` (versions) and `machine`."""
    return {"git": _git_state(), "packages": _versions(), "machine": _machine()}


def installed_version(package: str) -> str | None:
    """The installed version of a package; None if it isn't installed."""
    from importlib import metadata  # imports the package `email`, which takes 20 ms

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def training_threads() -> int:
    """Threads of a training: OMP_NUM_THREADS if it is set, otherwise all cores that this process may use."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    return int(given) if given.isdecimal() and int(given) > 0 else available_cores()


def number_in_environment(name: str, default: int) -> int:
    """Reads an environment variable of torchrun.

    :raises ValueError: the variable is not a number.
    """
    given = os.environ.get(name, str(default))
    if not given.isdecimal():
        raise ValueError(f"{name} is {given!r} in the environment: expected a number, as torchrun sets it, or unset")
    return int(given)


def gpu_name() -> str | None:
    """PyTorch's name of the first GPU; None without a GPU."""
    import torch

    return torch.cuda.get_device_name(0) if torch.cuda.is_available() else None


def gpus_to_use(asked: int | None) -> int:
    """The number of GPUs of a run: `asked`, otherwise one if available. 0 is the CPU.

    :raises SettingError: `asked` is more than this machine has.
    """
    import torch

    present = torch.cuda.device_count()
    if asked is None:
        return min(present, 1)
    if not 0 <= asked <= present:
        up_to = f" to {present}, the number of GPUs" if present else ": it is all"
        raise SettingError.of_value("gpus", asked, f"0 (the CPU){up_to} that PyTorch finds")
    return asked


def _git_state() -> dict[str, Any] | None:
    """The state of the package's git checkout; None if it has none or git is missing."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    try:
        commit = _git(root, "rev-parse", "HEAD")
        changes = _git(root, "status", "--porcelain", "--untracked-files=no")
        untracked = _git(root, "ls-files", "--others", "--exclude-standard", "--", *_CODE)
    except (OSError, subprocess.CalledProcessError):
        return None
    return {"commit": commit, "dirty": bool(changes or untracked)}


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(root), *arguments], check=True, capture_output=True, text=True
    ).stdout.strip()


def _versions() -> dict[str, str]:
    found = {package: installed_version(package) for package in _PACKAGES}
    return {"python": platform.python_version(), **{package: each for package, each in found.items() if each}}


def _machine() -> dict[str, Any]:
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu_model(),
        "instructions": _instructions(),
        "cores": available_cores(),
        "threads": training_threads(),
        "gpu": gpu_name(),
    }


def _instructions() -> str:
    """The widest vector instructions that PyTorch uses on this CPU, such as AVX2 or AVX512."""
    import torch

    return torch.backends.cpu.get_cpu_capability()


def _cpu_model() -> str:
    if sys.platform == "linux":
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def constraints_file() -> Path:
    """The path of constraints.txt."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "constraints.txt"
    return installed if installed.exists() else package.parent / "constraints.txt"


def read_tested_versions(
    path: Path | None = None, *, python: tuple[int, ...] = sys.version_info[:2]
) -> dict[str, str]:
    """Reads the tested version of each package for a version of Python.

    :param path: a file with lines `name==version`, some with `; python_version < "3.11"` (or >=). Comments begin with
        #. Default: `constraints_file()`.
    """
    path = path or constraints_file()
    versions = {}
    for line in path.read_text("utf-8").splitlines():
        line = line.partition("#")[0].strip()
        if not line:
            continue
        match = _CONSTRAINT.fullmatch(line)
        assert match is not None, f"{path}: expected name==version, got {line!r}"
        if match["sign"]:
            older = python < tuple(map(int, match["python"].split(".")))
            if older != (match["sign"] == "<"):
                continue
        versions[match["name"]] = match["version"]
    return versions
