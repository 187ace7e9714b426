"""Checks this environment: Python, packages, PyTorch and the download cache."""

from __future__ import annotations

import os
import platform
import sys
from importlib import metadata

from rskip.files.cache import cache_folder
from rskip.machine.environment import available_cores, constraints_file, installed_version, read_tested_versions
from rskip.machine.extras import install_command, package_of, requirements
from rskip.machine.findings import Findings
from rskip.settings.errors import SettingError, did_you_mean
from rskip.settings.user_dir import ENVIRONMENT, user_dir

# the oldest supported and the newest tested Python
PYTHONS = ((3, 10), (3, 13))
# the environment variables that begin with RSKIP_; JOB and LOCK are for rskip's own child processes
VARIABLES = ("DATA", "HUB_MIRROR", "JOB", "LOCK", "NATIVE", "OFFLINE", "USER_DIR")
_PREFIX = "RSKIP_"
_NOT_SHOWN = ("all", "pictures", "dev", "docs", "release")


def check_machine(findings: Findings) -> None:
    """Checks Python, platform and cores."""
    findings.show("Python", f"{platform.python_version()} ({sys.executable})")
    oldest, newest = (f"{major}.{minor}" for major, minor in PYTHONS)
    if sys.version_info[:2] > PYTHONS[1]:
        note = f"Python {platform.python_version()} is newer than the tested versions, {oldest} to {newest}"
        findings.notes.append(note)
    findings.show("platform", f"{platform.platform()}, {available_cores()} CPU cores for this process")
    if sys.prefix == sys.base_prefix:
        findings.notes.append(
            f"this is not a virtual environment: rskip is installed in {sys.prefix}"
        )


def check_variables(findings: Findings) -> None:
    """Finds environment variables whose name begins like rskip's, but which rskip doesn't read."""
    for variable in sorted(os.environ):
        name = variable.removeprefix(_PREFIX)
        if name not in (variable, *VARIABLES):
            meant = did_you_mean(name, VARIABLES, before=_PREFIX)
            findings.notes.append(f"rskip doesn't read the environment variable {variable}{meant}")


def check_user_dir(findings: Findings, given: str | None) -> str | None:
    """Imports the package with the user's own connections. Returns its folder, or None without an importable one.

    :param given: the value of --user-dir.
    """
    try:
        with user_dir(given):
            folder = os.environ.get(ENVIRONMENT)
    except SettingError as error:
        findings.wrong.append(str(error))
        return None
    if folder:
        findings.show("user-dir", folder)
    return folder


def check_packages(findings: Findings) -> None:
    """Compares installed with tested versions, and finds missing requirements."""
    tested = read_tested_versions()
    for package in ("rskip", "torch", "torchvision", "onnxruntime"):
        findings.show(package, installed_version(package) or "not installed")
    builds = {package: installed_version(package) for package in tested}  # such as 2.15.0+cpu, a build of 2.15.0
    installed = {package: build and build.partition("+")[0] for package, build in builds.items()}
    same = sum(installed[package] == tested[package] for package in tested)
    missing = sum(installed[package] is None for package in tested)
    parts = [f"{same} of {len(tested)} packages have the version of {constraints_file()}"]
    if others := len(tested) - same - missing:
        parts.append(f"{others} have another, see below")
    if missing:
        parts.append(f"{missing} are not installed, and only some extras need them")
    findings.show("tested versions", "; ".join(parts))
    for package, tested_version in tested.items():
        if installed[package] not in (tested_version, None):
            findings.notes.append(
                f"{package} {installed[package]} is not the tested version {tested_version}: "
                f"if it causes problems, pip install {package}=={tested_version}"
            )
    for requirement in requirements():
        if installed_version(package_of(requirement)) is None:
            findings.wrong.append(f'{package_of(requirement)} is missing: pip install "{requirement}"')


def check_extras(findings: Findings) -> None:
    """Lists the extras whose packages are all installed, and the other extras."""
    names = [name for name in metadata.metadata("rskip").get_all("Provides-Extra") or [] if name not in _NOT_SHOWN]
    there = [name for name in names if all(map(installed_version, map(package_of, requirements(name))))]
    others = [name for name in names if name not in there]
    findings.show("extras", ", ".join(there) or "none")
    if others:
        findings.show("other extras", f"{', '.join(others)}: {install_command('EXTRA')}")


def check_pytorch(findings: Findings) -> bool:
    """Checks PyTorch's devices and whether torchvision fits. Returns whether PyTorch can be imported."""
    try:
        import torch
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "torch":
            needed = "translation on a CPU needs only the compiled kernels, everything else needs the extra torch"
            findings.show("PyTorch", f"not installed: {needed} ({install_command('torch')})")
            return False
        findings.wrong.append(
            f"PyTorch can't be imported ({error}): pip install --force-reinstall torch torchvision"
        )
        return False
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    names = ", ".join(torch.cuda.get_device_name(index) for index in range(count))
    findings.show("GPU", names or "none that PyTorch can use; training runs on the CPU")
    try:
        import torchvision

        torchvision.ops.nms(torch.zeros(1, 4), torch.zeros(1), 0.5)
    except ModuleNotFoundError:
        pass  # an extra brings it
    except Exception as error:
        findings.wrong.append(
            f"torchvision doesn't fit torch {torch.__version__} ({error}): "
            "pip install --upgrade torch torchvision"
        )
    return True


def check_cache(findings: Findings) -> None:
    """Shows the folder of the download cache and its size."""
    folder = cache_folder()
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else 0
    findings.show(
        "downloads", f"{folder} ({size / 1e6:.1f} MB; set RSKIP_DATA to use another folder)"
    )
