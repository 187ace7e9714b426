"""Your own task (tests/tasks/toy_task.py), a project that runs it, and fairseq's stand-ins of tests/translation."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rskip.tasks.task
from rskip.cli.main import main
from rskip.tasks import Task, register_task
from tests.translation.conftest import fakes

__all__ = ["fakes", "killed_at_rename", "line_fitting", "project"]

RECIPE = """
kind: line
slope: 3.0
train: {steps: 20, lr: 0.1}
"""


@pytest.fixture
def line_fitting(monkeypatch: pytest.MonkeyPatch) -> Task[Any]:
    """The toy task, known by its name during a test."""
    spec = importlib.util.spec_from_file_location("toy_task", Path(__file__).parents[1] / "tasks" / "toy_task.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "toy_task", module)  # msgspec looks there for a type's annotations
    spec.loader.exec_module(module)
    monkeypatch.setattr(rskip.tasks.task, "_tasks", rskip.tasks.tasks())
    register_task(module.TASK)
    return module.TASK  # type: ignore[no-any-return]


@pytest.fixture
def project(line_fitting: Task[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the recipe recipes/mine.yaml of the toy task."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "mine.yaml").write_text(RECIPE)
    return tmp_path


@pytest.fixture
def killed_at_rename(line_fitting: Task[Any]) -> Callable[[int, list[str]], bool]:
    """Runs `rskip ARGUMENTS` in a copy of this process that is killed right before its n-th rename.

    Gives whether it was killed, and not at its end before.
    """

    def run(at: int, arguments: list[str]) -> bool:
        process = os.fork()
        if process == 0:
            count = 0

            def killing(call: Callable[..., None]) -> Callable[..., None]:
                def rename(*paths: Any, **options: Any) -> None:
                    nonlocal count
                    count += 1
                    if count == at:
                        os.kill(os.getpid(), signal.SIGKILL)
                    call(*paths, **options)

                return rename

            os.rename, os.replace = killing(os.rename), killing(os.replace)
            status = 3
            try:
                status = main(arguments)
            finally:
                os._exit(status)
        status = os.waitpid(process, 0)[1]
        assert status in (0, signal.SIGKILL), status
        return status != 0

    return run
