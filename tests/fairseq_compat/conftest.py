"""Fresh processes with and without a patch."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

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


@pytest.fixture(scope="session")
def fork_server(environment: Environment) -> Iterator[subprocess.Popen[str]]:
    """The running `fork_server.py`."""
    with subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("fork_server.py"))],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        yield server
        assert server.stdin
        server.stdin.close()


@pytest.fixture
def python(
    tmp_path: Path, fork_server: subprocess.Popen[str], environment: Environment
) -> Callable[..., Process]:
    """As `bare_python`, but PyTorch is imported already (fairseq is not), which saves most of the time."""

    def run(code: str, *, without: str = "", **variables: str) -> Process:
        assert fork_server.stdin and fork_server.stdout
        variables = environment(FAIRSEQ_COMPAT_DISABLE=without, **variables)
        request = {"code": textwrap.dedent(code), "folder": str(tmp_path), "environment": variables}
        print(json.dumps(request), file=fork_server.stdin, flush=True)
        return subprocess.CompletedProcess("", **json.loads(fork_server.stdout.readline()))

    return run
