"""Runs a command with its output in a file. It ends with this process, and its failure becomes an error of one line."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from rskip.files.folder_lock import FolderLock, LockLost
from rskip.machine.environment import training_threads
from rskip.machine.workers import ending_with_this

DIVERGED = 8  # exit status, the number of SIGFPE: a loss, gradient or weight is not finite
_POLL_SECONDS = 1.0
_STOP_SECONDS = 30.0
_REFUSAL = re.compile(r"fairseq-\w+: error: ")  # under torchrun, whose own exit status is 1
_TORCHRUN_FAILED = "ChildFailedError"  # printed by torchrun after the error of the failed process
_TORCHRUN_STATUS = re.compile(r"^\s*exitcode\s*:\s*(-?\d+)", re.MULTILINE)  # there it prints that process's own
_RAISED = re.compile(r"[\w.]*(Error|Exception|Interrupt)\b")
_OWN_ERROR = re.compile(r"[\w-]+( [\w-]+)*: error:")  # the command's own line, which says what to do
_RANK = re.compile(r"\[rank\d+\]: ")  # PyTorch puts it before each line of a rank's traceback


class CommandFailed(RuntimeError):
    """Raised if a correctly started command failed. The message is one line with the path of the log."""


class TrainingDiverged(CommandFailed):
    """Raised if a training ended with the status DIVERGED."""


def executable(name: str) -> str:
    """The path of a command installed next to the running Python.

    :raises FileNotFoundError: the command is not installed.
    """
    path = Path(sys.executable).parent / name
    if not path.is_file():
        advice = "run `rskip setup-fairseq` first" if name.startswith("fairseq-") else "install it with pip"
        raise FileNotFoundError(f"{name} is not installed in this environment: {advice}")
    return str(path)


def launched(program: str, *, gpus: int) -> list[str]:
    """The beginning of a command that trains: the program, under `torchrun` for several GPUs."""
    if gpus <= 1:
        return [program]
    return ["torchrun", "--standalone", "--nproc-per-node", str(gpus), executable(program)]


def run_logged(
    command: Sequence[str],
    *,
    log: Path,
    processes: int = 1,
    lock: FolderLock | None = None,
    on_poll: Callable[[], None] = lambda: None,
    output: Path | None = None,
) -> None:
    """Runs the command to its end, as `end_of` does. It reads and writes UTF-8 in every locale.

    :param processes: its number of processes, which share the machine's threads.
    :raises ValueError: the user must act before the command can continue (exit status 2: wrong arguments, full disk).
    :raises TrainingDiverged: the training diverged.
    :raises CommandFailed: the command failed otherwise.
    :raises LockLost: as `end_of`.
    """
    threads = str(max(training_threads() // processes, 1))
    environment = {**os.environ, "OMP_NUM_THREADS": threads, "PYTHONUNBUFFERED": "1", "PYTHONUTF8": "1"}
    status, reason = end_of(command, log=log, environment=environment, lock=lock, on_poll=on_poll, output=output)
    if status == 0:
        return
    if status == DIVERGED:
        raise TrainingDiverged(f"{command[0]} ended: {reason} (log: {log})")
    if status == 2 or _REFUSAL.match(reason):
        raise ValueError(f"{command[0]} could not continue: {reason} (log: {log})")
    ending = f"exit status {status}" if status > 0 else f"killed by {signal.Signals(-status).name}"
    advice = "" if _OWN_ERROR.match(reason) else "; repeat the command to resume"
    raise CommandFailed(f"{command[0]} failed ({ending}): {reason} (log: {log}{advice})")


def end_of(
    command: Sequence[str],
    *,
    log: Path,
    environment: Mapping[str, str],
    lock: FolderLock | None = None,
    on_poll: Callable[[], None] = lambda: None,
    output: Path | None = None,
) -> tuple[int, str]:
    """Runs the command to its end. Returns its exit status, negative for a signal, and the line with the reason.

    If this process is interrupted, the command is terminated first. If this process is killed, so is the command.

    :param log: the file to which its output is appended.
    :param output: a file for its standard output instead.
    :param lock: the lock of its folder, which it finds in its environment.
    :param on_poll: called about every second.
    :raises LockLost: another process has taken over the folder; the command is killed.
    """
    start = log.stat().st_size if log.exists() else 0
    with log.open("ab") as log_file, (output or log).open("ab") as output_file:
        process = subprocess.Popen(
            [executable(command[0]), *command[1:]],
            stdin=subprocess.DEVNULL,
            stdout=output_file,
            stderr=log_file,
            env={**environment, **(lock.environment() if lock else {})},
            preexec_fn=ending_with_this(),
        )
        try:
            while process.poll() is None:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=_POLL_SECONDS)
                    break
                if lock:
                    lock.check()
                on_poll()
        except BaseException as raised:
            if isinstance(raised, LockLost):
                process.kill()  # a terminated command would save
            _stop(process, signalled=isinstance(raised, KeyboardInterrupt) and _in_foreground())
            raise
    on_poll()
    if process.returncode == 0:
        return 0, ""
    with log.open("rb") as log_file:
        log_file.seek(start)
        printed = log_file.read().decode(errors="replace")
    status = process.returncode
    if _TORCHRUN_FAILED in printed and (statuses := _TORCHRUN_STATUS.findall(printed)):
        status = int(statuses[-1])  # of the process that failed first
    with log.open("a") as log_file:
        # fails if the disk is full, which the command could not report
        log_file.write(f"{command[0]} ended with status {status}\n")
    return status, last_error_line(printed)


def last_error_line(text: str) -> str:
    """The line that says why a command failed.

    This is the last line with an argument error of fairseq, since the other ranks end with follow-up errors. Without
    such a line, it is the last line that looks like an error message, otherwise the last line that is not empty.
    """
    lines = [_RANK.sub("", line.strip(), count=1) for line in text.splitlines() if _TORCHRUN_FAILED not in line]
    lines = [line for line in lines if line]
    refusals = [line for line in lines if _REFUSAL.match(line)]
    errors = [line for line in lines if _RAISED.match(line) or _OWN_ERROR.match(line)]
    return (refusals or errors or lines or ["it printed nothing"])[-1]


def _in_foreground() -> bool:
    """Whether this process has a terminal, whose Ctrl-C also reaches its children."""
    try:
        return os.tcgetpgrp(sys.stderr.fileno()) == os.getpgrp()
    except (OSError, ValueError):  # no terminal
        return False


def _stop(process: subprocess.Popen[bytes], *, signalled: bool) -> None:
    """Terminates the command and waits for it. A command that was already signalled may be saving, so only waits."""
    if not signalled:
        process.terminate()
    try:
        process.wait(timeout=_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
