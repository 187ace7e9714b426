"""What a record says of the machine and the code."""

from __future__ import annotations

import json
import socket
import subprocess
from pathlib import Path

import pytest

from rskip.machine import environment


@pytest.mark.parametrize(("given", "threads"), [("3", 3), ("", None), ("0", None), ("many", None)])
def test_threads_are_those_of_omp_num_threads_or_all_cores(
    monkeypatch: pytest.MonkeyPatch, given: str, threads: int | None
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", given)
    assert environment.training_threads() == (threads or environment.available_cores())


def test_no_name_or_folder_of_the_machine_is_told() -> None:
    text = json.dumps(environment.describe_environment())
    assert str(Path.home()) not in text
    assert str(Path(environment.__file__).parents[2]) not in text
    assert f'"{socket.gethostname()}"' not in text


def test_git_tells_the_commit_and_whether_tracked_files_changed(
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
    (tmp_path / "file").write_text("2")
    assert environment.describe_environment()["git"] == {"commit": git("rev-parse", "HEAD"), "dirty": True}
