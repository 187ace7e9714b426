"""How a translation of files goes, shown on a terminal or in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TextIO

from tqdm import tqdm

from rskip.translation.translation import Translation
from rskip.translation.windows import Window

_MOST_NOTES = 20


class Progress:
    """Called for each window, prints now and then how far the translation is, and how fast.

    On a terminal one line is written again and again, otherwise a line at least `every` seconds. Notes on sentences
    that were cut, split or stopped get a line each, 20 at most.

    :param total: bytes of all inputs; None: not known.
    :param live: whether to print progress.
    :param notes: whether to print notes.
    :param ranks: processes that share the inputs, all of them as fast as this one.
    """

    def __init__(
        self,
        *,
        total: int | None,
        live: bool,
        notes: bool = True,
        ranks: int = 1,
        every: float = 10.0,
        stream: TextIO | None = None,
    ) -> None:
        self._stream = sys.stderr if stream is None else stream
        terminal = self._stream.isatty()
        self._bar = tqdm(bar_format="{desc}", leave=False, file=self._stream, disable=not (live and terminal))
        self._total, self._live, self._notes, self._ranks = total, live, notes, ranks
        self._every = 0.2 if terminal else every
        self._printed = -float("inf")
        self._first: int | None = None
        self._position = 0
        self.before = 0  # bytes of earlier inputs, whose windows counted from 0 too
        self.lines = 0
        self.tokens = 0
        self.seconds = 0.0
        self.noted = 0

    def __call__(self, window: Window, translations: Sequence[Translation], seconds: float) -> None:
        """A window was translated in so many seconds."""
        self.lines += len(translations)
        self.tokens += sum(len(each.hypotheses[0].tokens) for each in translations)
        self.seconds += seconds
        self._position = self.before + window.position
        if self._first is None:
            self._first = self._position - window.size
        for line, translation in enumerate(translations, start=window.first_line):
            for note in translation.notes:
                self._note(f"{window.name}: line {line}: {note}")
        now = time.monotonic()
        if self._live and now - self._printed >= self._every:
            self._printed = now
            if self._bar.disable:
                print(self._progress_line(), file=self._stream, flush=True)
            else:
                self._bar.set_description_str(self._progress_line())

    def end(self) -> None:
        """Clears the line of progress."""
        self._bar.close()
        if self._notes and self.noted > _MOST_NOTES:
            print(f"({self.noted - _MOST_NOTES:,} more of such lines)", file=self._stream)

    def _note(self, note: str) -> None:
        self.noted += 1
        if self._notes and self.noted <= _MOST_NOTES:
            self._bar.write(note, file=self._stream)
            self._stream.flush()

    def _progress_line(self) -> str:
        lines, tokens = self._ranks * self.lines, self._ranks * self.tokens
        parts = [f"{lines:,} lines", speed(lines, tokens, self.seconds)]
        if self._total:
            assert self._first is not None
            left = (self._total - self._position) * self.seconds / (self._position - self._first)
            parts += [f"{100 * self._position / self._total:.0f} %", f"{duration(left)} left"]
        return "   ".join(parts)


def speed(lines: int, tokens: int, seconds: float) -> str:
    """Sentences and tokens a second."""
    seconds = max(seconds, 1e-9)
    return f"{lines / seconds:,.1f} sentences/s   {tokens / seconds:,.0f} tokens/s"


def duration(seconds: float) -> str:
    """In hours and minutes, minutes and seconds, or seconds."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes = int(seconds // 60)
    return f"{minutes} min {int(seconds % 60)} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
