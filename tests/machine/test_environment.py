"""What a run ran on, and the tested versions."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from rskip.machine import cores, environment, memory
from rskip.machine.cores import available_cores
from rskip.machine.environment import constraints_file, read_tested_versions


@pytest.mark.parametrize(("given", "threads"), [("3", 3), ("", None), ("0", None), ("many", None)])
def test_threads_are_those_of_omp_num_threads_or_all_cores(
    monkeypatch: pytest.MonkeyPatch, given: str, threads: int | None
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", given)
    assert environment.training_threads() == (threads or available_cores())


@pytest.mark.parametrize(("limit", "most"), [("max 100000", 64), ("150000 100000", 2), ("5000 100000", 1), ("", 64)])
def test_a_containers_limit_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, most: int) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(64)), raising=False)
    monkeypatch.setattr(cores, "_LIMIT", tmp_path / "cpu.max")
    (tmp_path / "cpu.max").write_text(limit)
    assert available_cores() == most
    monkeypatch.setattr(memory, "_LIMIT", tmp_path / "memory.max")
    whole = memory.available_memory()
    (tmp_path / "memory.max").write_text("5000\n")
    assert memory.available_memory() == 5000 < whole


def test_no_name_or_folder_of_the_machine_is_told() -> None:
    text = json.dumps(environment.describe_environment())
    assert str(Path.home()) not in text
    assert str(Path(environment.__file__).parents[2]) not in text
    assert f'"{socket.gethostname()}"' not in text


def test_the_machines_instructions_are_those_that_pytorch_uses() -> None:
    code = "from rskip.machine.environment import describe_environment; print(describe_environment()['machine'])"
    slow = {**os.environ, "ATEN_CPU_CAPABILITY": "default"}
    printed = subprocess.run([sys.executable, "-c", code], env=slow, check=True, capture_output=True, text=True).stdout
    assert "'instructions': 'DEFAULT'" in printed


def test_git_tells_the_commit_and_whether_code_or_tracked_files_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "__file__", str(tmp_path / "rskip" / "machine" / "environment.py"))
    assert environment.describe_environment()["git"] is None

    def git(*arguments: str) -> str:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b")
        command = ["git", "-C", str(tmp_path), *identity, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "-q")
    assert environment.describe_environment()["git"] is None  # nothing committed yet
    (tmp_path / "file").write_text("1")
    git("add", "file")
    git("commit", "-q", "-m", "first")
    (tmp_path / "untracked").write_text("1")
    assert environment.describe_environment()["git"] == {"commit": git("rev-parse", "HEAD"), "dirty": False}
    (tmp_path / "rskip").mkdir()
    module = tmp_path / "rskip" / "new.py"
    module.touch()
    assert environment.describe_environment()["git"] == {"commit": git("rev-parse", "HEAD"), "dirty": True}
    module.unlink()
    (tmp_path / "file").write_text("2")
    assert environment.describe_environment()["git"] == {"commit": git("rev-parse", "HEAD"), "dirty": True}


def test_this_checkouts_file_is_found(root):
    assert constraints_file() == root / "constraints.txt"


def test_markers_choose_by_python(tmp_path):
    path = tmp_path / "constraints.txt"
    path.write_text(
        '# tested\nnumpy==2.4.6; python_version >= "3.11"  # newest\n\n'
        'numpy==2.2.6; python_version < "3.11"\na-b==1\n'
    )
    assert read_tested_versions(path, python=(3, 10)) == {"numpy": "2.2.6", "a-b": "1"}
    assert read_tested_versions(path, python=(3, 11)) == read_tested_versions(path, python=(3, 13))
    assert read_tested_versions(path, python=(3, 13)) == {"numpy": "2.4.6", "a-b": "1"}


@pytest.mark.parametrize("python", [(3, 10), (3, 11), (3, 12), (3, 13)])
def test_every_requirement_has_a_tested_version(root, python):
    """What setup.py requires, extras too, and what development does, for each Python."""
    tomllib = pytest.importorskip("tomllib", reason="needs Python 3.11")
    groups = tomllib.loads((root / "pyproject.toml").read_text())["dependency-groups"].values()
    lines = [*metadata.requires("rskip"), *(line for group in groups for line in group)]
    required = {re.split(r"[^\w.-]", line)[0].lower() for line in lines}
    assert {"torch", "sacremoses", "omegaconf", "pytest"} <= required
    assert required - {name.lower() for name in read_tested_versions(python=python)} == set()
