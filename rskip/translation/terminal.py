"""Shows the progress of a translation at a terminal, and translates interactively."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any, TextIO

from rskip.files.windows import Window
from rskip.machine.terminal import duration
from rskip.translation.translation import SentenceError, Translation

if TYPE_CHECKING:
    from rskip.machine.progress import Progress

_MOST_NOTES = 20
_LONG_BATCH = 1.0  # seconds after which the steps of its search are shown


@dataclass
class _UnderWay:
    """A window that is being searched.

    share: completed share. tokens: number of target tokens so far.
    """

    window: Window
    share: float = 0.0
    tokens: int = 0


class TranslationProgress:
    """Shows the progress and speed of a translation after each batch.

    The order of calls is `begin` for a window, `batch` for its batches, then the call with its translations. Windows of
    several threads may overlap. Notes on lines that were cut, split or stopped are printed one per line, at most 20.

    :param total: size of all inputs in bytes; None: unknown.
    :param live: whether to show progress. In a log it prints at most one line per `every` seconds.
    :param notes: whether to print notes.
    :param ranks: number of processes that share the inputs. They are assumed to be equally fast.
    :param named: changes the text of a note, such as names of settings.
    """

    def __init__(
        self,
        *,
        total: int | None,
        live: bool,
        notes: bool = True,
        ranks: int = 1,
        named: Callable[[str], str] = str,
        every: float = 10.0,
        stream: TextIO | None = None,
    ) -> None:
        self._settings: dict[str, Any] = {"own_text": True, "log": every, "shown": live, "stream": stream}
        self._total, self._notes, self._ranks, self._named = total, notes, ranks, named
        self._first: int | None = None
        self._position = 0
        self._under_way: dict[int, _UnderWay] = {}
        self._since = 0.0  # start of the current windows, or end of the last one
        self._shown = 0.0
        self._lock = Lock()
        self.before = 0  # bytes of earlier inputs, since each input's windows count from 0
        self.lines = 0
        self.tokens = self.read = self.unknown = 0
        self.seconds = 0.0
        self.noted = 0

    def begin(self, window: Window, tokens: int = 0, unknown: int = 0) -> None:
        """A window was read and is searched next.

        :param tokens, unknown: its source tokens, and those that the model's dictionary lacks.
        """
        with self._lock:
            self.read, self.unknown = self.read + tokens, self.unknown + unknown
            if not self._under_way:
                self._since = self._shown = time.perf_counter()
            if self._first is None:
                self._first = self._position = self.before + window.position - window.size
            self._under_way[window.number] = _UnderWay(window)

    def step(self, number: int) -> None:
        """The search of a batch has done this number of steps."""
        with self._lock:
            if self._under_way and time.perf_counter() - self._shown > _LONG_BATCH:
                self._show(f"at token {number:,}")

    def batch(self, window: Window, share: float, tokens: int) -> None:
        """A batch with this number of target tokens is done. `share` is the completed share of the window, up to 1."""
        with self._lock:
            under_way = self._under_way[window.number]
            under_way.share, under_way.tokens = share, under_way.tokens + tokens
            self._show()

    def __call__(self, window: Window, translations: Sequence[Translation], seconds: float) -> None:
        """A window was translated in this number of seconds."""
        with self._lock:
            self._under_way.pop(window.number, None)
            self.lines += len(translations)
            self.tokens += sum(len(each.hypotheses[0].tokens) for each in translations)
            self.seconds += seconds
            self._since = time.perf_counter()
            self._position = self.before + window.position
            if self._first is None:
                self._first = self._position - window.size
            for line, translation in enumerate(translations, start=window.first_line):
                for note in translation.notes:
                    self.noted += 1
                    if self._notes and self.noted <= _MOST_NOTES:
                        self._progress.note(f"{window.name}: line {line}: {self._named(note)}")
            self._show()

    @cached_property
    def _progress(self) -> Progress:
        """The line at the terminal. A translation that shows nothing doesn't import tqdm."""
        from rskip.machine.progress import Progress

        return Progress(**self._settings)

    def end(self) -> None:
        """Clears the progress line."""
        if "_progress" in vars(self):
            self._progress.close()
        if self._notes and self.noted > _MOST_NOTES:
            self._progress.note(f"({self.noted - _MOST_NOTES:,} more such lines)")

    def _show(self, more: str = "") -> None:
        self._shown = time.perf_counter()
        if not self._settings["shown"]:
            return
        self._progress.set_description_str(self._line(more), refresh=False)
        self._progress.update()

    def _line(self, more: str) -> str:
        under_way = self._under_way.values()
        seconds = self.seconds + (time.perf_counter() - self._since if under_way else 0.0)
        lines = self.lines + sum(int(each.share * len(each.window.lines)) for each in under_way)
        tokens = self.tokens + sum(each.tokens for each in under_way)
        position = self._position + sum(each.share * each.window.size for each in under_way)
        lines, tokens = self._ranks * lines, self._ranks * tokens
        parts = [f"{lines:,} lines", speed(lines, tokens, seconds)]
        if self._total and self._first is not None and position > self._first:
            left = (self._total - position) * seconds / (position - self._first)
            parts += [f"{100 * position / self._total:.0f} %", f"{duration(left)} left"]
        return "   ".join([*parts, more] if more else parts)


def speed(lines: int, tokens: int, seconds: float) -> str:
    """Sentences and tokens per second."""
    seconds = max(seconds, 1e-9)
    return f"{lines / seconds:,.1f} sentences/s   {tokens / seconds:,.0f} tokens/s"


def converse(
    translate: Callable[[str], str],
    *,
    prompt: str,
    named: Callable[[str], str] = str,
    read: Callable[[str], str] = input,
    write: Callable[[str], None] = lambda text: print(text, end="", flush=True),
) -> None:
    """Reads sentences and writes the lines of `translate`, until the input ends.

    An interrupt (Ctrl-C) cancels the sentence that is being typed or translated. If a sentence can't be translated, the
    reason is written.

    :param named: changes the text of a reason, such as names of settings.
    """
    while True:
        try:
            sentence = read(prompt)
            if sentence.strip():
                write(translate(sentence))
        except KeyboardInterrupt:
            write("\n")
        except EOFError:
            write("\n")
            return
        except UnicodeDecodeError:
            write("(not valid UTF-8: set the terminal to UTF-8)\n")
        except SentenceError as error:
            write(f"({named(error.reason)})\n")
        except ValueError as error:
            write(f"({named(str(error))})\n")
