"""Fresh processes with and without a patch."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Process = subprocess.CompletedProcess[str]
Environment = Callable[..., dict[str, str]]


@pytest.fixture
def bare_python(tmp_path: Path, environment: Environment) -> Callable[..., Process]:
    """Runs code in a process of its own, in an empty folder; `without` names patches to leave out."""

    def run(code: str, *options: str, without: str = "", **variables: str) -> Process:
        return subprocess.run(
            [sys.executable, *options, "-c", textwrap.dedent(code)],
            cwd=tmp_path,
            env=environment(FAIRSEQ_COMPAT_DISABLE=without, **variables),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )

    return run


@pytest.fixture
def python(tmp_path: Path, forked: Callable[..., Process]) -> Callable[..., Process]:
    """As `bare_python`, in less time: a fork of a process that has imported PyTorch, and fairseq unless `fairseq=False`
    or `without` names patches."""

    def run(code: str, **options: Any) -> Process:
        return forked("-c", textwrap.dedent(code), folder=tmp_path, **options)

    return run
