"""`rskip setup-fairseq`: its checks, and the calls of pip that it makes."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from rskip.cli.main import main
from rskip.machine import fairseq_setup


@pytest.fixture
def pip(monkeypatch):
    """Records the calls of pip in place of making them; `pip.status` is what they return."""
    calls = SimpleNamespace(commands=[], environments=[], status=0)

    def run(command, *, env, stdin):
        calls.commands.append(command)
        calls.environments.append(env)
        return SimpleNamespace(returncode=calls.status)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(fairseq_setup, "is_installed", lambda: False)
    monkeypatch.setattr(fairseq_setup, "hook_is_installed", lambda: True)
    return calls


def test_installed_is_left_alone(monkeypatch, capsys):
    monkeypatch.setattr(subprocess, "run", None)
    assert main(["setup-fairseq"]) == 0
    assert capsys.readouterr().out == "fairseq 0.12.2 is installed\n"


def test_the_hook_is_installed_beside_fairseq_and_is_listed_among_its_files(tmp_path, monkeypatch, capsys, root):
    """Once, however often the command runs; a changed file is replaced."""
    record = tmp_path / "fairseq-0.12.2.dist-info" / "RECORD"
    record.parent.mkdir()
    (record.parent / "METADATA").write_text("Metadata-Version: 2.1\nName: fairseq\nVersion: 0.12.2\n")
    record.write_text("fairseq/__init__.py,,\nfairseq-0.12.2.dist-info/RECORD,,\n")
    (tmp_path / "fairseq_compat.pth").write_text("old")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("site.getsitepackages", lambda: [str(tmp_path)])
    for _ in range(2):
        assert main(["setup-fairseq"]) == 0
    assert capsys.readouterr().out == (
        f"fairseq 0.12.2 is installed\ninstalled fairseq's start-up hook in {tmp_path}\nfairseq 0.12.2 is installed\n"
    )
    names = ["fairseq_compat.pth", "fairseq_compat.start"]
    for name in names:
        assert (tmp_path / name).read_text() == (root / "fairseq_compat/site_files" / name).read_text()
    assert record.read_text().splitlines()[2:] == [f"{name},," for name in names]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fairseq-0.12.2.dist-info", *names]


def test_needs_first_then_fairseq_without_its_own_requirements(pip):
    assert main(["setup-fairseq"]) == 0
    first, second = pip.commands
    assert first[:4] == second[:4] == [sys.executable, "-m", "pip", "install"]
    assert {"hydra-core<1.4,>=1.3", "omegaconf<2.4,>=2.3", "bitarray>=2.8", "cython>=3"} <= set(first)
    assert second[-2:] == ["--no-deps", "fairseq==0.12.2"]


def test_missing_compiler_is_one_line_before_any_download(pip, monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    assert main(["setup-fairseq"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("rskip setup-fairseq: error: fairseq needs a C++ compiler")
    assert error.count("\n") == 1
    assert pip.commands == []


def test_missing_headers_are_one_line(pip, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    assert main(["setup-fairseq"]) == 2
    assert f"{tmp_path}/Python.h is missing" in capsys.readouterr().err
    assert pip.commands == []
