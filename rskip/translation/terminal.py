"""Translation as a person at a terminal sees it: how far files are, and a conversation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TextIO

from rskip.machine.terminal import Progress, duration
from rskip.translation.translation import SentenceError, Translation
from rskip.translation.windows import Window

_MOST_NOTES = 20


class TranslationProgress:
    """Called for each window, shows how far the translation is and how fast.

    Notes on sentences that were cut, split or stopped get a line each, 20 at most.

    :param total: bytes of all inputs; None: not known.
    :param live: whether to show progress; in a log it is a line at most every `every` seconds.
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
        self._progress = Progress(own_text=True, log=every, shown=live, stream=stream)
        self._total, self._notes, self._ranks = total, notes, ranks
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
                self.noted += 1
                if self._notes and self.noted <= _MOST_NOTES:
                    self._progress.note(f"{window.name}: line {line}: {note}")
        self._progress.set_description_str(self._line(self._first), refresh=False)
        self._progress.update()

    def end(self) -> None:
        """Clears the line of progress."""
        self._progress.close()
        if self._notes and self.noted > _MOST_NOTES:
            self._progress.note(f"({self.noted - _MOST_NOTES:,} more of such lines)")

    def _line(self, first: int) -> str:
        lines, tokens = self._ranks * self.lines, self._ranks * self.tokens
        parts = [f"{lines:,} lines", speed(lines, tokens, self.seconds)]
        if self._total:
            left = (self._total - self._position) * self.seconds / (self._position - first)
            parts += [f"{100 * self._position / self._total:.0f} %", f"{duration(left)} left"]
        return "   ".join(parts)


def speed(lines: int, tokens: int, seconds: float) -> str:
    """Sentences and tokens a second."""
    seconds = max(seconds, 1e-9)
    return f"{lines / seconds:,.1f} sentences/s   {tokens / seconds:,.0f} tokens/s"


def converse(
    translate: Callable[[str], str],
    *,
    prompt: str,
    read: Callable[[str], str] = input,
    write: Callable[[str], None] = lambda text: print(text, end="", flush=True),
) -> None:
    """Asks for sentences and writes what `translate` makes of them, lines with their ends, until the input ends.

    An interrupt (Ctrl-C) gives up a sentence, whether it is being typed or being translated. A sentence that can't be
    translated is answered with the reason.
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
            write(f"({error.reason})\n")
        except ValueError as error:
            write(f"({error})\n")
