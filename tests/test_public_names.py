"""docs/public_names.txt is what the code has: a public name goes, comes or changes on purpose only."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import rskip.nn


def test_the_list_is_up_to_date(root: Path, environment: Callable[..., dict[str, str]]) -> None:
    pytest.importorskip("fairseq")
    script = [sys.executable, "scripts/public_names.py", "--check"]
    done = subprocess.run(script, cwd=root, env=environment(PYTHONPATH=str(root)), capture_output=True, text=True)
    assert done.returncode == 0, f"if this is wanted, run scripts/public_names.py:\n{done.stdout}{done.stderr[-2000:]}"


def test_what_changes_a_line(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A parameter, a default, a method, a name that is not exported any more, and a docstring that says deprecated."""
    spec = importlib.util.spec_from_file_location("public_names", root / "scripts/public_names.py")
    names = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(names)
    before = {*names.python_names()}

    def check_calls(model, *args, strict=True, **kwargs):
        """Checks.

        .. deprecated:: 0.2
           Use nothing.
        """

    monkeypatch.setattr("rskip.nn.check_calls", check_calls)
    monkeypatch.delattr("rskip.nn.Residuals.leave")
    monkeypatch.setattr("rskip.nn.__all__", [name for name in rskip.nn.__all__ if name != "adapt"])
    after = {*names.python_names()}
    assert {line.partition("(")[0] for line in before - after} == {
        "rskip.nn.check_calls", "rskip.nn.Residuals.leave", "rskip.nn.adapt",
    }  # fmt: skip
    assert after - before == {"rskip.nn.check_calls(model, *args, strict=True, **kwargs)  # deprecated"}
