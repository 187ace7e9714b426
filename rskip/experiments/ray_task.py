"""A run as a task of Ray: `rskip run` of one variant and seed, in the worker's process group, in the shared folder."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rskip.tasks.process import end_of

_LOOKS = 10  # attempts, a second apart, before a new file of another machine counts as missing
_PREFIX = "rskip run: error: "


class RunKilled(RuntimeError):
    """Raised if the command was killed, because memory ran out or by a worker of Ray that ended."""


@dataclass(frozen=True, kw_only=True)
class RayTask:
    """The job of a worker.

    :param folder: the project's folder, with the same path on all machines.
    :param marker: a file in this folder.
    :param words: words of the command after `rskip`.
    :param log: log of the command, in the folder.
    :param variables: additional environment variables.
    """

    folder: str
    marker: str
    words: Sequence[str] = ()
    log: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)

    def run(self) -> str:
        """Runs the command to its end. Returns its error in one line, or "".

        :raises RunKilled: the command was killed, and may be started again.
        """
        if problem := self.problem_here():
            return problem
        try:
            os.chdir(self.folder)
            Path(self.log).parent.mkdir(parents=True, exist_ok=True)
            environment = {**os.environ, "PYTHONUNBUFFERED": "1", **self.variables}
            status, reason = end_of(["rskip", *self.words], log=Path(self.log), environment=environment)
        except OSError as error:
            return f"{socket.gethostname()}: {error}"
        if status == -signal.SIGKILL:
            raise RunKilled(f"killed on {socket.gethostname()}: {reason}")
        ending = f"killed by signal {-status}: " if status < 0 else ""
        return "" if status == 0 else f"{ending}{reason.removeprefix(_PREFIX)}"

    def problem_here(self) -> str:
        """The reason why this machine can't take part, or ""."""
        for look in range(_LOOKS):
            time.sleep(min(look, 1))
            if Path(self.folder, self.marker).exists():
                return ""
        return (
            f"{socket.gethostname()} doesn't see {self.folder}, or sees other files in it than this machine: put the "
            "project's folder on a file system that all machines share under one path"
        )
