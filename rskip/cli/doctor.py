"""Tell what is installed, which patches of fairseq are active, and what is wrong with this environment.

Exit status 0 where nothing is wrong, 1 where something is; each thing that is wrong comes with what to do."""

from __future__ import annotations

import argparse
import json
import platform
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

# the oldest Python that rskip runs on and the newest that it was tested with
PYTHONS = ((3, 10), (3, 13))


class Findings:
    """Lines of the report, things that are wrong, and things that are only worth knowing."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.wrong: list[str] = []
        self.notes: list[str] = []

    def show(self, what: str, value: str) -> None:
        self.lines.append(f"{what:<20} {value}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """It has none."""


def run(args: argparse.Namespace) -> int:
    """Looks at everything, then prints it."""
    findings = examine()
    print("\n".join(findings.lines))
    for title, entries in (("worth knowing", findings.notes), ("wrong", findings.wrong)):
        if entries:
            print(f"\n{title}:")
            print("\n".join(f"  - {entry}" for entry in entries))
    if not findings.wrong:
        print("\nnothing is wrong")
    return 1 if findings.wrong else 0


def examine() -> Findings:
    """All checks, in the order in which they are shown."""
    findings = Findings()
    for look in (
        look_at_machine,
        look_at_packages,
        look_at_pytorch,
        look_at_kernels,
        look_at_compiler,
        look_at_fairseq,
        look_at_cache,
    ):
        look(findings)
    return findings


def look_at_machine(findings: Findings) -> None:
    """Python, platform, cores."""
    from rskip.machine.environment import available_cores

    findings.show("Python", f"{platform.python_version()} ({sys.executable})")
    oldest, newest = (f"{major}.{minor}" for major, minor in PYTHONS)
    if sys.version_info[:2] > PYTHONS[1]:
        findings.notes.append(f"Python {platform.python_version()} is newer than the tested ones, {oldest} to {newest}")
    findings.show("platform", f"{platform.platform()}, {available_cores()} CPU cores for this process")
    if sys.prefix == sys.base_prefix:
        findings.notes.append(
            f"this is not a virtual environment: rskip is installed into {sys.prefix} itself"
        )


def look_at_kernels(findings: Findings) -> None:
    """The compiled kernels that translation on a CPU is faster with."""
    from rskip.cpu import find_library

    found = find_library()
    if found.library is None:
        findings.show("compiled kernels", "none")
        findings.notes.append(f"PyTorch translates without the compiled kernels: {found.problem}")
    else:
        findings.show("compiled kernels", f"with {found.library.instructions} instructions")


def look_at_packages(findings: Findings) -> None:
    """Installed versions against the tested ones, and requirements that are missing."""
    from rskip.cli.setup_fairseq import version
    from rskip.machine.environment import constraints_file, read_tested_versions

    tested = read_tested_versions()
    for package in ("rskip", "torch", "torchvision", "onnxruntime"):
        findings.show(package, version(package) or "not installed")
    builds = {package: version(package) for package in tested}  # such as 2.15.0+cpu, a build of 2.15.0
    installed = {package: build and build.partition("+")[0] for package, build in builds.items()}
    same = sum(installed[package] == tested[package] for package in tested)
    findings.show("tested versions", f"{same} of {len(tested)} packages as in {constraints_file()}")
    for package, tested_version in tested.items():
        if installed[package] not in (tested_version, None):
            findings.notes.append(
                f"{package} {installed[package]} is not the tested version {tested_version}: "
                f"in case of trouble, pip install {package}=={tested_version}"
            )
    for requirement in metadata.requires("rskip") or []:
        package = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
        if "extra ==" not in requirement and version(package) is None:
            findings.wrong.append(f"{package} is missing: pip install '{requirement}'")


def look_at_pytorch(findings: Findings) -> None:
    """PyTorch's devices, and whether torchvision fits."""
    try:
        import torch
    except Exception as error:
        findings.wrong.append(
            f"PyTorch can't be imported ({error}): pip install --force-reinstall torch torchvision"
        )
        return
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    names = ", ".join(torch.cuda.get_device_name(index) for index in range(count))
    from rskip.cpu.int8_linear import largest_int8_weight

    bits = {0: "none on this processor", 64: "7-bit weights, as this processor has no VNNI", 127: "8-bit weights"}
    findings.show("int8 on the CPU", bits[largest_int8_weight()])
    findings.show("GPU", names or "none that PyTorch can use; training runs on the CPU (--cpu)")
    try:
        import torchvision

        torchvision.ops.nms(torch.zeros(1, 4), torch.zeros(1), 0.5)
    except ModuleNotFoundError:
        findings.notes.append("torchvision is not installed: images need it (pip install 'rskip[vision]')")
    except Exception as error:
        findings.wrong.append(
            f"torchvision doesn't fit torch {torch.__version__} ({error}): "
            "pip install --upgrade torch torchvision"
        )


def look_at_compiler(findings: Findings) -> None:
    """The compiler that installing fairseq needs."""
    from rskip.cli.setup_fairseq import compiler

    findings.show("C++ compiler", compiler() or "none (needed to install fairseq)")


def look_at_fairseq(findings: Findings) -> None:
    """fairseq, the start-up hook and the patches, seen from a fresh process that nobody prepared."""
    from rskip.cli.setup_fairseq import FAIRSEQ, real_needs, version

    installed = version("fairseq")
    findings.show("fairseq", installed or "not installed")
    if installed is None:
        findings.wrong.append("fairseq is not installed: rskip setup-fairseq")
        return
    if installed != FAIRSEQ:
        findings.wrong.append(
            f"fairseq {installed} is installed, the patches are for {FAIRSEQ}: rskip setup-fairseq"
        )
    missing = [requirement for package, requirement in real_needs().items() if version(package) is None]
    if missing:
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
            f"the patches can't be examined ({last}): pip install --force-reinstall --no-deps rskip"
        )
        return
    report = json.loads(process.stdout)
    findings.show("start-up hook", "runs in every process" if report["hook"] else "missing")
    if not report["hook"]:
        site = metadata.distribution("rskip").locate_file("fairseq_compat.pth")
        findings.wrong.append(f"the start-up hook did not run; it is {site}: install rskip again")
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


def look_at_cache(findings: Findings) -> None:
    """Where downloads are kept, and how much lies there."""
    from rskip.files.cache import cache_folder

    folder: Path = cache_folder()
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else 0
    findings.show(
        "downloads", f"{folder} ({size / 1e6:.1f} MB; the environment variable RSKIP_DATA moves it)"
    )
