"""A user's mistake is one line and exit status 2; anything else keeps its traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rskip.fairseq_plugin import one_line_errors
from rskip.fairseq_plugin.one_line_errors import UsageError, usage_error_behind

CODE = """
import sys
sys.argv = [{program!r}]
sys.path.insert(0, {folder!r})
import one_line_errors as errors  # alone: its package imports fairseq
errors.install()
errors.install()
try:
    raise {error}
except Exception as error:
    raise RuntimeError("please ensure that the architectures match")
"""


def run(program: str, error: str) -> subprocess.CompletedProcess[str]:
    code = CODE.format(program=program, error=error, folder=str(Path(one_line_errors.__file__).parent))
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def test_usage_error_in_a_program_of_fairseqs():
    process = run("/some/bin/fairseq-train", "errors.UsageError('give 2, not 3')")
    assert process.returncode == 2
    assert process.stderr.splitlines()[-1] == "fairseq-train: error: give 2, not 3"
    assert "Traceback" not in process.stderr


@pytest.mark.parametrize(
    ("program", "error"), [("fairseq-train", "ValueError('ours')"), ("my_script.py", "errors.UsageError('x')")]
)
def test_everything_else_keeps_its_traceback(program, error):
    process = run(program, error)
    assert process.returncode == 1 and "Traceback" in process.stderr


def test_search_through_causes_ends_on_a_cycle():
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__context__ = second, first
    assert usage_error_behind(first) is None
    second.__cause__ = usage = UsageError("c")
    assert usage_error_behind(first) is usage
