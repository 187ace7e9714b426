"""Progress on a terminal or in a log, by tqdm."""

from __future__ import annotations

import sys
from typing import Any, TextIO

from rskip.machine.extras import extra

with extra("translation", "vision", "captioning", what="a progress bar"):
    from tqdm import tqdm

_BEGINNING = "{desc}: {n:,} of {total:,}{unit}"


class Progress(tqdm):
    """tqdm's bar where the stream is a terminal; elsewhere nothing, or a line at least `log` seconds after another.

    :param name: of the work.
    :param total: how much there is; None: not known.
    :param done: how much of it an earlier run has done.
    :param unit: what is counted; "B" is shown in kB, MB and so on.
    :param log: seconds; None: no lines in a log.
    :param own_text: what is shown is what `set_description_str` was given last, and no bar.
    :param shown: of several processes one shows a bar or lines.
    :param stream: default: stderr.
    """

    monitor_interval = 0  # tqdm's thread, which is for bars that are seldom looked at

    def __init__(
        self,
        name: str = "",
        *,
        total: int | None = None,
        done: int = 0,
        unit: str = "B",
        log: float | None = None,
        own_text: bool = False,
        shown: bool = True,
        stream: TextIO | None = None,
    ) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._log = log if not self._stream.isatty() else None
        super().__init__(
            desc=name,
            total=total,
            initial=done,
            unit=unit,
            unit_scale=unit == "B",
            bar_format="{desc}" if own_text else None if self._log is None else _BEGINNING,
            leave=not own_text and self._log is None,
            mininterval=0.2 if self._log is None else self._log,
            miniters=1,
            smoothing=0.05,
            dynamic_ncols=True,
            file=self._stream,
            disable=not shown or (self._log is None and not self._stream.isatty()),
        )
        if own_text:
            self.last_print_t = 0.0  # there was no text yet
        elif self._log is not None:
            self.bar_format = _BEGINNING + ", {rate_fmt}, {remaining} left"

    def display(self, msg: str | None = None, pos: int | None = None) -> Any:
        """Called by tqdm when it is time."""
        if self._log is None:
            return super().display(msg, pos)
        if msg is None and (line := str(self)):
            print(line, file=self._stream, flush=True)

    def note(self, line: str) -> None:
        """Any line, above the bar."""
        if self._log is None:
            self.write(line, file=self._stream)
        else:
            print(line, file=self._stream)
        self._stream.flush()
