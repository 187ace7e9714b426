"""Commands that are run with a log: what they print goes where, and how they fail."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from rskip.experiments.process import CommandFailed, last_error_line, run_logged

from rskip.experiments import process


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Runs a shell script as the command `tool`, with log.txt for its log."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))

    def run(script: str, **options: object) -> str:
        (tmp_path / "tool").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "tool").chmod(0o755)
        run_logged(["tool", "a b"], log=tmp_path / "log.txt", environment={"WHO": "me"}, **options)  # type: ignore[arg-type]
        return (tmp_path / "log.txt").read_text()

    return run


def test_output_is_appended_to_the_log_or_kept_apart(run, tmp_path: Path) -> None:
    assert run('echo "$1 $WHO"; echo complaint >&2') == "a b me\ncomplaint\n"
    assert run("echo out; echo complaint >&2", output=tmp_path / "out") == "a b me\ncomplaint\ncomplaint\n"
    assert (tmp_path / "out").read_text() == "out\n"


def test_it_is_polled_while_it_runs_and_once_at_its_end(run, tmp_path: Path) -> None:
    seen: list[str] = []
    run("echo one; sleep 1.5; echo two", on_poll=lambda: seen.append((tmp_path / "log.txt").read_text()))
    assert seen[0] == "one\n" and seen[-1] == "one\ntwo\n"


@pytest.mark.parametrize("from_terminal", [False, True])
def test_an_interruption_is_passed_on_but_not_twice(
    run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, from_terminal: bool
) -> None:
    monkeypatch.setattr(process, "_in_foreground", lambda: from_terminal)

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run("trap 'echo terminated' TERM; echo begun; sleep 1.5; echo saved", on_poll=interrupt)
    expected = ["begun", "saved"] if from_terminal else ["begun", "terminated", "saved"]
    assert (tmp_path / "log.txt").read_text().split() == expected


@pytest.mark.parametrize(
    ("script", "kind", "message"),
    [
        (
            "echo 'tool: error: no such flag'; exit 2",
            ValueError,
            "tool could not go on: tool: error: no such flag",
        ),
        (
            "echo 'torch.OutOfMemoryError: full'; echo x; exit 1",
            CommandFailed,
            "torch.OutOfMemoryError: full",
        ),
        (  # torchrun, after one of its processes
            "echo 'fairseq-train: error: no such flag'; echo 'torch.distributed.ChildFailedError:'; exit 1",
            ValueError,
            "tool could not go on: fairseq-train: error: no such flag",
        ),
        (  # torchrun tells the exit status of the process that failed first
            "echo 'rskip vision: error: depth is 21'; echo 'ChildFailedError:'; echo ' exitcode : 2 (pid: 7)'; exit 1",
            ValueError,
            "tool could not go on: rskip vision: error: depth is 21",
        ),
        (
            "echo 'rskip vision: error: loss is nan'; echo 'ChildFailedError:'; echo ' exitcode : 1 (pid: 7)'; exit 1",
            CommandFailed,
            "tool failed (exit status 1): rskip vision: error: loss is nan",
        ),
        (
            "echo 'x ChildFailedError:'; echo '  exitcode  : -9 (pid: 7)'; exit 1",
            CommandFailed,
            "tool failed (killed by SIGKILL)",
        ),
        ("exit 3", CommandFailed, "tool failed (exit status 3): it printed nothing"),
        ("kill -KILL $$", CommandFailed, "tool failed (killed by SIGKILL)"),
    ],
)
def test_failures_say_why_and_where_the_log_is(
    run, tmp_path: Path, script: str, kind: type, message: str
) -> None:
    (tmp_path / "log.txt").write_text("ValueError: of an earlier piece\n")
    with pytest.raises(kind) as error:
        run(script)
    assert message in str(error.value)
    told = "error:" in message or kind is ValueError  # the command itself says what to do
    advice = "" if told else "; repeat the command to go on from there"
    assert str(error.value).endswith(f"(log: {tmp_path / 'log.txt'}{advice})")
    assert "earlier" not in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("Traceback:\n  ValueError(x)\nKeyError: 'a'\n\nwarning\n", "KeyError: 'a'"),
        ("fairseq-train: error: argument --lr\n", "fairseq-train: error: argument --lr"),
        ("one\n two \n\n", "two"),
        ("Errors are not errors\nlast", "last"),
    ],
)
def test_the_line_that_tells_what_went_wrong(text: str, line: str) -> None:
    assert last_error_line(text) == line
