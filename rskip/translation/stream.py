"""Translation of any amount of text, window by window, in memory that does not grow."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence

from rskip.translation.lines import Window
from rskip.translation.output_lines import LineForm
from rskip.translation.translation import Translation

Translate = Callable[[Window], Sequence[Translation]]
Write = Callable[[Window, bytes], None]
Report = Callable[[Window, Sequence[Translation], float], None]

_SENTENCE = re.compile(r"sentence (\d+): (.*)", re.DOTALL)  # how Translator.translate names a sentence


def translate_stream(
    windows: Iterable[Window], translate: Translate, *, form: LineForm, write: Write, report: Report
) -> None:
    """Translates window after window and writes each before the next one is read.

    :param write: takes a window and its translations as `form` writes them, in UTF-8.
    :param report: takes a window, its translations, and the seconds from its text to its written translations.
    :raises ValueError: what `translate` raises; a sentence's number becomes that of its line.
    """
    for window in windows:
        started = time.perf_counter()
        translations = _translated(window, translate)
        assert len(translations) == len(window.lines)
        numbered = enumerate(translations, start=window.start + 1)
        write(window, "".join(form(each, number) for number, each in numbered).encode("utf-8"))
        report(window, translations, time.perf_counter() - started)


def _translated(window: Window, translate: Translate) -> Sequence[Translation]:
    try:
        return translate(window)
    except ValueError as error:
        match = _SENTENCE.fullmatch(str(error))
        if match is None:
            raise
        line = window.first_line + int(match[1]) - 1
        raise ValueError(f"{window.name}: line {line}: {match[2]}") from error
