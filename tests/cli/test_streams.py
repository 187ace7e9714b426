"""Standard streams that are closed or full, and locales without UTF-8."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

WORK = """
import sys
from pathlib import Path
from types import SimpleNamespace
from rskip.cli import main as cli

def run(args):
    print("a note: ü", file=sys.stderr)
    Path("work").write_text("done")
    print("the result: €", *sys.argv[2:])
    if "fail" in args.words:
        raise ValueError("a mistake")

def add_arguments(parser):
    parser.add_argument("words", nargs="*")

module = SimpleNamespace(__name__="work", __doc__="Works.", run=run, add_arguments=add_arguments)
cli.subcommands = lambda group: [] if group is module else ["work"]
cli.documentation = lambda name, group: module.__doc__
cli.subcommand_module = lambda name, group: module
sys.exit(cli.main())
"""
NOTE = "a note: ü\n"
PYTHONS = ("PYTHONIOENCODING", "PYTHONUNBUFFERED")
C_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def work(folder: Path, redirection: str, *arguments: str, **variables: str) -> tuple[int, str, str]:
    """The exit status, standard output and standard error of `rskip work`."""
    (folder / "work.py").write_text(WORK, encoding="utf-8")
    done = subprocess.run(
        ["sh", "-c", f'"$@" {redirection}', "sh", sys.executable, "work.py", *(arguments or ("work",))],
        cwd=folder,
        env={**{name: os.environ[name] for name in os.environ if name not in PYTHONS}, **variables},
        capture_output=True,
    )
    return done.returncode, done.stdout.decode("utf-8"), done.stderr.decode("utf-8")


@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full"])
def test_what_only_stderr_does_not_take_stops_no_work(redirection: str, tmp_path: Path) -> None:
    assert work(tmp_path, redirection) == (0, "the result: €\n", "")
    assert (tmp_path / "work").read_text() == "done"


@pytest.mark.parametrize(
    ("redirection", "reason"),
    [(">&-", "Bad file descriptor"), (">/dev/full", "No space left on device; free some space and repeat the command")],
)
def test_a_result_that_stdout_does_not_take_is_one_line_and_status_2(
    redirection: str, reason: str, tmp_path: Path
) -> None:
    error = f"error: standard output: {reason}\n"
    assert work(tmp_path, redirection) == (2, "", f"{NOTE}rskip work: {error}")
    assert (tmp_path / "work").read_text() == "done"  # the file did not get the closed stream's descriptor
    assert work(tmp_path, redirection, "work", "--help") == (2, "", f"rskip work: {error}")
    assert work(tmp_path, redirection, "--version") == (2, "", f"rskip: {error}")


@pytest.mark.parametrize("redirection", [">&-", ">/dev/full"])
def test_another_mistake_after_some_output_is_one_line_too(redirection: str, tmp_path: Path) -> None:
    assert work(tmp_path, redirection, "work", "fail") == (2, "", f"{NOTE}rskip work: error: a mistake\n")


def test_every_stream_may_be_closed(tmp_path: Path) -> None:
    assert work(tmp_path, "<&- >&- 2>&-") == (2, "", "")
    assert (tmp_path / "work").read_text() == "done"


def test_text_is_utf8_in_every_locale(tmp_path: Path) -> None:
    assert work(tmp_path, "", "work", "Grüße", **C_LOCALE) == (0, "the result: € Grüße\n", NOTE)
