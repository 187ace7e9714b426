"""The wheel of a copy of the repository, and fresh environments to install it in."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

OF_PUBLISHED_MODELS = ("README.md",)  # all that is in the source distribution


def run(*command: str | Path, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    left = ("PIP_", "COVERAGE", "PYTHONPATH")  # pip takes what is in PYTHONPATH for installed
    kept = {name: value for name, value in os.environ.items() if not name.startswith(left)}
    return subprocess.run(
        list(map(str, command)),
        cwd=folder,
        env={**kept, "PIP_DISABLE_PIP_VERSION_CHECK": "1", **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


def run_well(*command: str | Path, folder: Path, **variables: str) -> str:
    process = run(*command, folder=folder, **variables)
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


@pytest.fixture(scope="package")
def checkout(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Path:
    """A copy of what git has, but the published weights, in a folder with a space in its name."""
    folder = tmp_path_factory.mktemp("clone") / "my rskip"
    tracked = run_well("git", "ls-files", "-z", folder=root).split("\0")[:-1]
    for name in tracked:
        if not name.startswith("checkpoints/") or name.endswith(OF_PUBLISHED_MODELS):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(root / name, folder / name)
    return folder


@pytest.fixture(scope="package")
def wheel(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that is made from the source distribution, as an index would serve the two. Its kernels are slow ones,
    which compile faster."""
    folder = tmp_path_factory.mktemp("wheel")
    code = f"from setuptools.build_meta import build_sdist; print(build_sdist({str(folder)!r}))"
    run_well(sys.executable, "-c", code, folder=checkout)
    (source,) = folder.glob("rskip-*.tar.gz")
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
    compiler = folder / "unoptimised"
    compiler.write_text('#!/bin/sh\nexec cc "$@" -O0\n')
    compiler.chmod(0o755)
    run_well(*pip, "--wheel-dir", folder, source, folder=folder, CC=str(compiler))
    (path,) = folder.glob("rskip-*.whl")
    return path


def fresh_environment(parent: Path, *options: str) -> Path:
    """A fresh environment's Python. It sees this environment's packages, but none of its .pth files."""
    folder = parent / "fresh"
    run_well(sys.executable, "-m", "venv", *options, folder, folder=parent)
    site = folder / Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)
    (site / "outer.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin" / "python"
