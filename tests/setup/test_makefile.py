"""The Makefile: its checks before any work, and nothing done twice."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

OLD_PYTHON = """\
#!/bin/sh
case "$1" in --version) echo Python 3.9.18;; *) exit 1;; esac
"""

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


@pytest.fixture
def checkout(tmp_path: Path, root: Path) -> Path:
    """A folder, with a space in its name, that holds what the set-up looks at."""
    folder = tmp_path / "a checkout"
    folder.mkdir()
    for name in ("Makefile", "setup.py", "pyproject.toml", "constraints.txt"):
        shutil.copy(root / name, folder)
    return folder


def make(folder: Path, *arguments: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    return subprocess.run(
        [str(shutil.which("make")), *arguments],
        cwd=folder,
        env={**variables, "PATH": path or variables["PATH"]},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


def error_lines(process: subprocess.CompletedProcess[str]) -> list[str]:
    """What a user reads on stderr, without make's own last line."""
    return [line for line in process.stderr.splitlines() if not line.startswith("make: ***")]


def folder_of_programs(folder: Path, *names: str) -> str:
    """A PATH that has these programs alone."""
    folder.mkdir()
    for name in names:
        (folder / name).symlink_to(str(shutil.which(name)))
    return str(folder)


@pytest.mark.parametrize("target", ["demo", "test", "lint", "setup"])
def test_too_old_python_is_one_line_before_any_work(checkout, tmp_path, target):
    old = tmp_path / "python3.9"
    old.write_text(OLD_PYTHON)
    old.chmod(0o755)
    process = make(checkout, target, f"PYTHON={old}")
    assert process.returncode == 2
    assert error_lines(process) == [
        f"error: rskip needs Python 3.10 or newer, and {old} is Python 3.9.18: "
        "choose another with make PYTHON=python3.11"
    ]
    assert not (checkout / ".venv").exists()


def test_missing_python_is_one_line(checkout):
    process = make(checkout, "setup", "PYTHON=python-that-is-not-there")
    assert process.returncode == 2
    assert error_lines(process) == [
        "error: rskip needs Python 3.10 or newer, and python-that-is-not-there is not there: "
        "choose another with make PYTHON=python3.11"
    ]


def test_missing_compiler_is_one_line_before_any_work(checkout, tmp_path):
    path = folder_of_programs(tmp_path / "bin", "sh", "echo", "mkdir", "touch")
    process = make(checkout, "setup", f"PYTHON={sys.executable}", path=path)
    assert process.returncode == 2
    assert error_lines(process) == [
        "error: no C++ compiler (g++, c++ or clang++) is on the PATH, and fairseq needs one: install g++"
    ]
    assert not (checkout / ".venv").exists()


def pretend_it_is_set_up(checkout: Path) -> Path:
    """Leaves the stamps of a finished set-up, one second apart, newer than what they depend on."""
    stamps = checkout / ".venv" / "stamps"
    stamps.mkdir(parents=True)
    for age, name in enumerate(("dev", "fairseq", "rskip", "torch", "venv")):
        (stamps / name).touch()
        os.utime(stamps / name, times=(time.time() + 10 - age,) * 2)
    return stamps


def test_nothing_is_done_twice(checkout):
    pretend_it_is_set_up(checkout)
    assert make(checkout, "--question", "setup").returncode == 0


@pytest.mark.parametrize("changed", ["constraints.txt", "setup.py"])
def test_changed_requirements_are_installed_again(checkout, changed):
    pretend_it_is_set_up(checkout)
    os.utime(checkout / changed, times=(time.time() + 100,) * 2)
    assert make(checkout, "--question", "setup").returncode == 1


def test_plain_make_tells_the_targets_and_does_nothing(checkout):
    process = make(checkout)
    assert "make demo" in process.stdout
    assert not (checkout / ".venv").exists()


def test_public_ci_runs_targets_that_there_are_with_every_python_that_setup_py_names(root):
    workflow = yaml.safe_load((root / ".github/workflows/ci.yml").read_text("utf-8"))
    matrix = workflow["jobs"]["test"]["strategy"]["matrix"]
    phony = re.search(r"^\.PHONY: (.*)$", (root / "Makefile").read_text("utf-8"), re.MULTILINE)[1].split()
    asked = [*matrix["targets"], *(job["targets"] for job in matrix["include"])]
    assert {target for each in asked for target in each.split()} == {"test", "docs", "dist"} <= set(phony)
    assert {step["run"] for step in workflow["jobs"]["test"]["steps"] if "run" in step} == {
        "make setup", "make ${{ matrix.targets }}"
    }  # fmt: skip
    named = re.search(r'"Programming Language :: Python :: .*? in \((.*?)\)', (root / "setup.py").read_text("utf-8"))[1]
    assert matrix["python"] == re.findall(r"3\.\d+", named)


def test_the_tests_need_neither_the_site_nor_the_tools_of_a_release(checkout):
    assert "--group docs" not in make(checkout, "--dry-run", "test").stdout
    assert "--group docs" in make(checkout, "--dry-run", "docs").stdout
