"""Translation of any amount of text, window by window, in memory that does not grow."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from rskip.translation.lines import Window
from rskip.translation.output_lines import LineForm
from rskip.translation.translation import SentenceError, Translation

Translate = Callable[[Window], Sequence[Translation]]
Write = Callable[[Window, bytes], None]
Report = Callable[[Window, Sequence[Translation], float], None]


def translate_stream(
    windows: Iterable[Window], translate: Translate, *, form: LineForm, write: Write, report: Report, ahead: int = 0
) -> None:
    """Translates window after window and writes each, in their order.

    :param write: takes a window and its translations as `form` writes them, in UTF-8.
    :param report: takes a window, its translations, and the seconds that it took.
    :param ahead: so many windows are read and translated, in threads, before the one in front of them is written.
        With 0 a window is written before the next one is read.
    :raises ValueError: what `translate` raises; a sentence's number becomes that of its line.
    """
    started = time.perf_counter()
    for window, translations, since in _translations(windows, translate, ahead):
        assert len(translations) == len(window.lines)
        numbered = enumerate(translations, start=window.start + 1)
        write(window, "".join(form(each, number) for number, each in numbered).encode("utf-8"))
        now = time.perf_counter()
        report(window, translations, now - max(started, since))
        started = now


def _translations(
    windows: Iterable[Window], translate: Translate, ahead: int
) -> Iterator[tuple[Window, Sequence[Translation], float]]:
    """Windows, their translations, and when each had been read. What stops the windows comes after those before it."""
    if not ahead:  # in this thread, which an interrupt stops at once
        for window in windows:
            since = time.perf_counter()
            yield window, _translated(window, translate), since
        return
    threads = ThreadPoolExecutor(ahead + 1)
    pending: deque[tuple[Window, Future[Sequence[Translation]], float]] = deque()
    try:
        for found in _until_error(windows):
            if isinstance(found, Window):
                pending.append((found, threads.submit(_translated, found, translate), time.perf_counter()))
            while pending and (len(pending) > ahead or not isinstance(found, Window)):
                first, future, since = pending.popleft()
                yield first, future.result(), since
            if isinstance(found, Exception):
                raise found
    finally:
        threads.shutdown(wait=False, cancel_futures=True)


def _until_error(windows: Iterable[Window]) -> Iterator[Window | Exception | None]:
    """The windows, and then the error that ended them, or None."""
    try:
        yield from windows
    except (ValueError, OSError) as error:
        yield error
    else:
        yield None


def _translated(window: Window, translate: Translate) -> Sequence[Translation]:
    try:
        return translate(window)
    except SentenceError as error:
        line = window.first_line + error.number - 1
        raise ValueError(f"{window.name}: line {line}: {error.reason}") from error
