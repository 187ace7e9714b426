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

_LOOKS = 10  # a second apart, before a file that another machine has just made counts as not there
_PREFIX = "rskip run: error: "


class RunKilled(RuntimeError):
    """The command was killed: by whoever ran out of memory, or by a worker of Ray that was about to end itself."""


@dataclass(frozen=True, kw_only=True)
class RayTask:
    """What a worker gets.

    :param folder: the project's, with the same path on all machines.
    :param marker: a file that is in it.
    :param words: of the command after `rskip`.
    :param log: of what the command prints, in the folder.
    :param variables: of the environment, beside the worker's own.
    """

    folder: str
    marker: str
    words: Sequence[str] = ()
    log: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)

    def run(self) -> str:
        """Runs the command to its end; what went wrong, in one line, or "".

        :raises RunKilled: it was killed, and may be begun again.
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
        """Why this machine can't take part, or ""."""
        for look in range(_LOOKS):
            time.sleep(min(look, 1))
            if Path(self.folder, self.marker).exists():
                return ""
        return (
            f"{socket.gethostname()} doesn't see {self.folder}, or not the files of this machine: put the "
            "project's folder on a file system that all machines share under one path"
        )
