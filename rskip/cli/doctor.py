"""Check the environment: installed packages, active patches of fairseq, and problems with their fixes.

Exit status: 0 if nothing is wrong, otherwise 1."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from dataclasses import dataclass, field
from importlib import metadata

from rskip.cpu import find_library
from rskip.extras import advice, install_command, package_of, requirements
from rskip.files.cache import cache_folder
from rskip.machine.cores import available_cores
from rskip.machine.environment import constraints_file, installed_version, read_tested_versions
from rskip.machine.fairseq_setup import FAIRSEQ, compiler, missing_needs
from rskip.settings.errors import SettingError, did_you_mean
from rskip.settings.user_dir import ENVIRONMENT, user_dir

CHECKS_USER_DIR = True
# the oldest supported and the newest tested Python
PYTHONS = ((3, 10), (3, 13))
# the environment variables that begin with RSKIP_; JOB and LOCK are for rskip's own child processes
VARIABLES = ("DATA", "HUB_MIRROR", "JOB", "KERNELS", "LOCK", "NATIVE", "OFFLINE", "USER_DIR")
_PREFIX = "RSKIP_"
_DISABLE = "FAIRSEQ_COMPAT_DISABLE"
_INT8 = {0: "none on this processor", 64: "7-bit weights, as this processor has no VNNI", 127: "8-bit weights"}


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
    check_machine(findings)
    check_variables(findings)
    folder = check_user_dir(findings, user_dir)
    check_packages(findings)
    check_extras(findings)
    check_kernels(findings, pytorch=check_pytorch(findings))
    findings.show("C++ compiler", compiler() or "none (needed to install fairseq)")
    check_fairseq(findings, user_dir=folder)
    cache = cache_folder()
    size = sum(path.stat().st_size for path in cache.rglob("*") if path.is_file()) if cache.is_dir() else 0
    findings.show("downloads", f"{cache} ({size / 1e6:.1f} MB; set RSKIP_DATA to use another folder)")
    return findings


@dataclass
class Findings:
    """Lines of the report, problems (`wrong`), and notes."""

    lines: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def show(self, what: str, value: str) -> None:
        """Adds a line to the report."""
        self.lines.append(f"{what:<20} {value}")


def check_machine(findings: Findings) -> None:
    """Checks Python, platform and cores."""
    findings.show("Python", f"{platform.python_version()} ({sys.executable})")
    oldest, newest = (f"{major}.{minor}" for major, minor in PYTHONS)
    if sys.version_info[:2] > PYTHONS[1]:
        note = f"Python {platform.python_version()} is newer than the tested versions, {oldest} to {newest}"
        findings.notes.append(note)
    findings.show("platform", f"{platform.platform()}, {available_cores()} CPU cores for this process")
    if sys.prefix == sys.base_prefix:
        findings.notes.append(f"this is not a virtual environment: rskip is installed in {sys.prefix}")


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
    names = [name for name in metadata.metadata("rskip").get_all("Provides-Extra") or [] if name != "all"]
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
        findings.wrong.append(f"PyTorch can't be imported ({error}): pip install --force-reinstall torch torchvision")
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


def check_kernels(findings: Findings, *, pytorch: bool) -> None:
    """Reports the compiled kernels, and the number of weight bits that they multiply in an 8-bit model.

    :param pytorch: whether PyTorch can be imported. Otherwise nothing translates without the kernels.
    """
    try:
        found = find_library()
    except SettingError as error:
        findings.wrong.append(str(error))
        return
    if found.library is not None:
        findings.show("compiled kernels", f"with {found.library.instructions} instructions")
        findings.show("int8 on the CPU", _INT8[found.library.largest_weight])
        return
    findings.show("compiled kernels", "none")
    if pytorch:
        findings.notes.append(f"translation uses PyTorch without the compiled kernels: {found.problem}")
    else:
        remedies = f"{found.problem}; or {advice('torch')}"
        findings.wrong.append(f"translation needs the compiled kernels or PyTorch: {remedies}")


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
        findings.wrong.append(f"the patches can't be checked ({last}): reinstall rskip")
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
