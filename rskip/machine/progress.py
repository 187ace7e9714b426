"""Shows progress on a terminal or in a log, with tqdm."""

from __future__ import annotations

import sys
from typing import Any, TextIO

from rskip.extras import extra

with extra("translate", "translation", "vision", "captioning", what="a progress bar"):
    from tqdm import tqdm

_BEGINNING, _LATER = "{desc}: {total:,}{unit}", "{desc}: {n:,} of {total:,}{unit}"


class Progress(tqdm):
    """tqdm's bar if the stream is a terminal; otherwise nothing, or lines at least `log` seconds apart.

    :param name: the name of the work.
    :param total: the amount of work; None: unknown.
    :param done: the amount that an earlier run has done.
    :param unit: the counted unit; "B" is shown in kB, MB and so on.
    :param log: seconds between lines; None: no lines.
    :param beginning: whether there is a line at once, before the work.
    :param own_text: show only the last text given to `set_description_str`, without a bar.
    :param shown: whether this process shows progress; only one of several does.
    :param stream: the stream; default: stderr.
    """

    monitor_interval = 0  # no monitor thread, which is for bars that are seldom updated

    def __init__(
        self,
        name: str = "",
        *,
        total: int | None = None,
        done: int = 0,
        unit: str = "B",
        log: float | None = None,
        beginning: bool = True,
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
            bar_format="{desc}" if own_text else None if self._log is None else _LATER if done else _BEGINNING,
            leave=not own_text and self._log is None,
            mininterval=0.2 if self._log is None else self._log,
            miniters=1,
            delay=0 if self._log is None or beginning else self._log,
            smoothing=0.05,
            dynamic_ncols=True,
            file=self._stream,
            disable=not shown or (self._log is None and not self._stream.isatty()),
        )
        if own_text:
            self.last_print_t = 0.0  # there was no text yet
        elif self._log is not None:
            self.bar_format = _LATER + ", {rate_fmt}, {remaining} left"

    def display(self, msg: str | None = None, pos: int | None = None) -> Any:
        """Called by tqdm when the display is due."""
        if self._log is None:
            return super().display(msg, pos)
        if msg is None and (line := str(self)):
            print(line, file=self._stream, flush=True)

    def note(self, line: str) -> None:
        """Prints a line above the bar."""
        if self._log is None:
            self.write(line, file=self._stream)
        else:
            print(line, file=self._stream)
        self._stream.flush()
