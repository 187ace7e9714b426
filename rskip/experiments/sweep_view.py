"""Shows the progress of many runs, one line per run: redrawn in place on a terminal, appended to a log."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from rskip.files.folder_lock import read_owner
from rskip.tasks.run import RunFolder

_LOG_SECONDS = 60.0  # minimum between two lines of a run in a log
_TAIL = 4096  # bytes of a log that its last line is in


def now_doing(folder: RunFolder, log: Path, *, job: str) -> str | None:
    """The last line that a run printed, and where it runs; None where no process of the job works on it.

    :param job: as in `Owner.job`.
    """
    owner = read_owner(folder.path)
    if owner is None or owner.job != job:
        return None
    attempt = f", attempt {owner.attempt}" if owner.attempt > 1 else ""
    return f"{' '.join(_last_line(log).split()) or 'begins'}  ({owner.host}{attempt})"


def _last_line(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - _TAIL, 0))
            lines = file.read().decode(errors="replace").splitlines()
    except FileNotFoundError:
        return ""
    return next((line for line in reversed(lines) if line.strip()), "")


@dataclass
class SweepView:
    """Prints progress.

    :param count: number of runs.
    :param stream: the stream; default: stdout.
    """

    count: int
    stream: TextIO = field(default_factory=lambda: sys.stdout)
    done: int = 0
    failed: int = 0
    _drawn: int = 0  # lines on the terminal that are drawn anew
    _printed: dict[str, tuple[str, float]] = field(default_factory=dict)  # in a log: a run's last line, and when

    def end(self, run: str, line: str, *, failed: bool) -> None:
        """A run has ended."""
        self.done += not failed
        self.failed += failed
        self._clear()
        print(f"{run}: {line}", file=self.stream, flush=True)

    def show(self, running: Mapping[str, str]) -> None:
        """What the running ones are doing, by their names."""
        if not self.stream.isatty():
            now = time.monotonic()
            for run, line in running.items():
                before, when = self._printed.get(run, ("", -_LOG_SECONDS))
                if line != before and now >= when + _LOG_SECONDS:
                    print(f"{run}: {line}", file=self.stream, flush=True)
                    self._printed[run] = line, now
            return
        columns, rows = shutil.get_terminal_size()
        width = max(map(len, running), default=0)
        lines = [f"{run:<{width}}  {line}" for run, line in running.items()]
        if len(lines) > rows - 2:
            lines = [*lines[: rows - 3], f"... and {len(lines) - rows + 3} more"]
        waiting = self.count - self.done - self.failed - len(running)
        lines.append(f"{self.done} done, {len(running)} running, {waiting} waiting, {self.failed} failed")
        self._clear()
        print("\n".join(line[: columns - 1] for line in lines), file=self.stream, flush=True)
        self._drawn = len(lines)

    def _clear(self) -> None:
        if self._drawn:
            print(f"\x1b[{self._drawn}A\x1b[J", end="", file=self.stream)
            self._drawn = 0
