"""Commands that are run with a log: what they print goes where, and how they fail."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rskip.files.folder_lock import LockLost, folder_lock
from rskip.tasks import process
from rskip.tasks.process import CommandFailed, last_error_line, run_logged


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Runs a shell script as the command `tool`, with log.txt for its log."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(process, "_POLL_SECONDS", 0.2)
    monkeypatch.setenv("WHO", "me")

    def run(script: str, **options: object) -> str:
        (tmp_path / "tool").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "tool").chmod(0o755)
        run_logged(["tool", "a b"], log=tmp_path / "log.txt", **options)  # type: ignore[arg-type]
        return (tmp_path / "log.txt").read_text()

    return run


def test_output_is_appended_to_the_log_or_kept_apart(run, tmp_path: Path) -> None:
    assert run('echo "$1 $WHO"; echo complaint >&2') == "a b me\ncomplaint\n"
    assert run("echo out; echo complaint >&2", output=tmp_path / "out") == "a b me\ncomplaint\ncomplaint\n"
    assert (tmp_path / "out").read_text() == "out\n"


def test_it_is_polled_while_it_runs_and_once_at_its_end(run, tmp_path: Path) -> None:
    seen: list[str] = []
    run("echo one; sleep 0.5; echo two", on_poll=lambda: seen.append((tmp_path / "log.txt").read_text()))
    assert seen[0] == "one\n" and seen[-1] == "one\ntwo\n"


@pytest.mark.parametrize("from_terminal", [False, True])
def test_an_interruption_is_passed_on_but_not_twice(
    run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, from_terminal: bool
) -> None:
    monkeypatch.setattr(process, "_in_foreground", lambda: from_terminal)

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run("trap 'echo terminated' TERM; echo begun; sleep 0.5; echo saved", on_poll=interrupt)
    expected = ["begun", "saved"] if from_terminal else ["begun", "terminated", "saved"]
    assert (tmp_path / "log.txt").read_text().split() == expected


@pytest.mark.skipif(sys.platform != "linux", reason="it is Linux that kills the command")
def test_a_command_stays_in_the_process_group_and_is_killed_with_the_process_that_runs_it(tmp_path: Path) -> None:
    script = f"echo $$ > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/number; sleep 60"
    (tmp_path / "tool").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "tool").chmod(0o755)
    code = f"""
import sys
from pathlib import Path
from rskip.tasks.process import run_logged
sys.executable = {str(tmp_path / "python")!r}
run_logged(["tool"], log=Path({str(tmp_path / "log")!r}))
"""
    runner = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    while not (tmp_path / "number").exists():
        assert runner.poll() is None
        time.sleep(0.01)
    tool = int((tmp_path / "number").read_text())
    assert os.getpgid(tool) == runner.pid
    runner.kill()
    runner.wait()
    deadline = time.monotonic() + 10
    while _runs(tool):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(runner.pid, signal.SIGKILL)  # the sleep, which the tool started


def _runs(number: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{number}/status").read_text()
    except FileNotFoundError:
        return False


def test_a_command_whose_folder_was_taken_over_is_killed_at_once(run, tmp_path: Path) -> None:
    with folder_lock(tmp_path / "folder", busy="") as lock:

        def take_over() -> None:
            if (tmp_path / "begun").exists():
                lock.path.unlink(missing_ok=True)

        with pytest.raises(LockLost, match="is gone: this process stops"):
            script = f"trap 'echo saved' TERM; touch {tmp_path}/begun; echo $RSKIP_LOCK; sleep 1; sleep 1; sleep 1"
            run(script, lock=lock, on_poll=take_over)
    assert (tmp_path / "log.txt").read_text() == f"{lock.mark} {lock.path}\n"


TORCHRUN = "torch.distributed.ChildFailedError:"
FAILURES = [  # what it prints, its exit status; the exception, and what that says
    (["tool: error: no such flag"], "exit 2", ValueError, "tool could not continue: tool: error: no such flag"),
    (["torch.OutOfMemoryError: full", "x"], "exit 1", CommandFailed, "torch.OutOfMemoryError: full"),
    ([], "exit 3", CommandFailed, "tool failed (exit status 3): it printed nothing"),
    ([], "kill -KILL $$", CommandFailed, "tool failed (killed by SIGKILL)"),
    # torchrun, after one of its processes; where it tells the exit status of the one that failed first, that one's
    (["fairseq-train: error: no", TORCHRUN], "exit 1", ValueError, "could not continue: fairseq-train: error: no"),
    (["rskip vision train: error: a", TORCHRUN, " exitcode : 2 (pid: 7)"], "exit 1", ValueError, "train: error: a"),
    (
        ["rskip vision train: error: loss is nan", TORCHRUN, " exitcode : 1 (pid: 7)"], "exit 1", CommandFailed,
        "tool failed (exit status 1): rskip vision train: error: loss is nan",
    ),
    ([TORCHRUN, "  exitcode  : -9 (pid: 7)"], "exit 1", CommandFailed, "tool failed (killed by SIGKILL)"),
]  # fmt: skip


def test_failures_say_why_and_where_the_log_is(run, tmp_path: Path) -> None:
    for lines, end, kind, message in FAILURES:
        (tmp_path / "log.txt").write_text("ValueError: of an earlier session\n")
        with pytest.raises(kind) as error:
            run("\n".join([*(f"echo '{line}'" for line in lines), end]))
        assert message in str(error.value)
        said = "error:" in message or kind is ValueError  # the command itself says what to do
        advice = "" if said else "; repeat the command to resume"
        assert str(error.value).endswith(f"(log: {tmp_path / 'log.txt'}{advice})")
        assert "earlier" not in str(error.value) and "\n" not in str(error.value)


def test_the_line_that_says_what_went_wrong() -> None:
    for text, line in {
        "Traceback:\n  ValueError(x)\nKeyError: 'a'\n\nwarning\n": "KeyError: 'a'",
        "fairseq-train: error: argument --lr\n": "fairseq-train: error: argument --lr",
        "one\n two \n\n": "two",
        "Errors are not errors\nlast": "last",
        "[rank1]: Traceback:\n[rank1]:   x\n[rank1]: KeyError: 'a'\nFAILED\n": "KeyError: 'a'",
        "fairseq-train: error: no\n[rank1]: RuntimeError: closed by peer\n": "fairseq-train: error: no",
    }.items():
        assert last_error_line(text) == line


def test_a_program_that_is_not_installed_is_named_with_what_installs_it(run) -> None:
    for name, advice in {"fairseq-train": "run `rskip setup-fairseq` first", "torchrun": "install it with pip"}.items():
        with pytest.raises(FileNotFoundError, match=f"{name} is not installed in this environment: {advice}"):
            process.executable(name)
