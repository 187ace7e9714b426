"""`rskip doctor`: what it shows, and its exit status."""

from __future__ import annotations

from types import SimpleNamespace

from fairseq_compat.patches import PATCHES
from rskip.cli import doctor
from rskip.cli.main import main
from rskip.machine.findings import Findings


def test_this_environment_is_fine(capsys):
    """All of it, with a real process: the environment that runs the tests has every patch in force."""
    assert doctor.run(SimpleNamespace(user_dir=None)) == 0
    shown = dict(
        line.strip().split(maxsplit=1) for line in capsys.readouterr().out.splitlines() if "  " in line
    )
    assert shown["fairseq"] == "0.12.2"
    assert {shown[name] for name in [*(patch.name for patch in PATCHES), "run-lock"]} == {"active"}


def test_all_fine_is_said(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "examine", lambda user_dir: Findings())
    assert doctor.run(SimpleNamespace(user_dir=None)) == 0
    assert "nothing is wrong" in capsys.readouterr().out


def test_wrong_things_are_listed_and_status_1(monkeypatch, capsys):
    found = Findings()
    found.wrong.append("it is broken: fix it")
    monkeypatch.setattr(doctor, "examine", lambda user_dir: found)
    assert doctor.run(SimpleNamespace(user_dir=None)) == 1
    out = capsys.readouterr().out
    assert "wrong:\n  - it is broken: fix it\n" in out
    assert "nothing is wrong" not in out


def test_a_wrong_user_dir_is_a_finding(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("RSKIP_USER_DIR", str(tmp_path))
    monkeypatch.setattr("rskip.machine.fairseq_checks.check_fairseq", lambda findings, user_dir: None)
    assert main(["doctor"]) == 1
    out, error = capsys.readouterr()
    assert error == "" and out.endswith(
        f"wrong:\n  - RSKIP_USER_DIR is '{tmp_path}': expected an existing folder with an __init__.py\n"
    )
    assert "\ndownloads " in out
