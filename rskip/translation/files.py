"""Translates files and streams window by window, in constant memory."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rskip.cpu.threads import threads
from rskip.files.resumable import ResumableFile, merge_parts, part_path, write_all
from rskip.files.windows import Window, read_windows
from rskip.generation import Hypothesis, SearchOptions
from rskip.machine.ranks import Ranks
from rskip.text import Dictionary
from rskip.translation.jobs import Job, known_sum
from rskip.translation.options import LARGE, MAX_TOKENS, MAX_WORKERS, BatchSettings
from rskip.translation.search import ModelSearcher, Searcher, Segment
from rskip.translation.terminal import TranslationProgress
from rskip.translation.translation import LineForm, SentenceError, Translation
from rskip.translation.translator import Translator

if TYPE_CHECKING:
    from concurrent.futures import Future

WINDOW_CHARACTERS = 300_000
WAIT = 0.1  # seconds without new input after which the available lines are translated

Translate = Callable[[Window], Sequence[Translation]]
Write = Callable[[Window, bytes], None]
Report = Callable[[Window, Sequence[Translation], float], None]


def worth_workers(jobs: Sequence[Job], translator: Translator) -> int:
    """The default number of worker processes: several for large files on the CPU, else 1."""
    size = known_sum(job.size for job in jobs)
    if translator.device.type != "cpu" or size is None or size < LARGE:
        return 1
    return min(threads(), MAX_WORKERS)


class Totals(NamedTuple):
    """Totals over all ranks. The seconds of a rank don't include waiting for input.

    unknown: share of the source tokens that the model's dictionary lacks, from 0 to 1.
    """

    lines: int
    tokens: int
    seconds: float
    unknown: float


@dataclass(frozen=True, kw_only=True)
class FileTranslation:
    """Translates jobs with fixed settings.

    journal: all settings that determine the output, for the journal of a resumable output.
    workers: number of processes that search; 1: this process.
    """

    translator: Translator
    options: SearchOptions
    batches: BatchSettings
    form: LineForm
    journal: Mapping[str, Any]
    resume: bool
    ranks: Ranks
    progress: TranslationProgress
    workers: int = 1

    def run(self, jobs: Sequence[Job]) -> Totals:
        """Translates each job, or this rank's share of its windows.

        :raises StoppedError: an error occurred after an output's first window. The output can be resumed.
        :raises ValueError: an error occurred before.
        """
        started = time.perf_counter()
        try:
            with self._searcher() as searcher:
                for job in jobs:
                    self._run(job, searcher)
                    self.progress.before += job.size or 0
        finally:
            self.progress.end()
        counts = [self.progress.lines, self.progress.tokens, self.progress.read, self.progress.unknown]
        lines, tokens, read, unknown = self.ranks.add_up(counts)
        seconds = self.progress.seconds if self.ranks.count == 1 else time.perf_counter() - started
        return Totals(lines, tokens, seconds, unknown / max(read, 1))

    def _searcher(self) -> AbstractContextManager[Searcher]:
        if self.workers > 1:
            from rskip.translation.workers import Workers

            return Workers(self.translator.model, self.workers)
        return nullcontext(ModelSearcher(self.translator.model, self.progress.step))

    def _run(self, job: Job, searcher: Searcher) -> None:
        def translated(window: Window) -> list[Translation]:
            return translate_window(
                self.translator,
                window.lines,
                self.options,
                self.batches,
                number=window.number,
                searcher=partial(self._searched, searcher, window),
            )

        translate = partial(translate_stream, translate=translated, form=self.form, report=self.progress)
        if not job.to_file:
            with _stream(job.output) as write:
                translate(self._windows(job, WAIT), write=write)
            return
        assert job.output is not None
        job.output.parent.mkdir(parents=True, exist_ok=True)
        part = part_path(job.output, self.ranks.rank, self.ranks.count)
        with ResumableFile(part, self.journal, resume=self.resume) as file:
            missing = file.missing(self._windows(job, None))
            translate(missing, write=file.write, ahead=1 if self.workers > 1 else 0)
            if self.ranks.count == 1:
                file.finish(job.output)
        self.ranks.wait()
        if self.ranks.first and self.ranks.count > 1:
            merge_parts(job.output, self.ranks.count)

    def _searched(
        self, searcher: Searcher, window: Window, batches: Sequence[Sequence[Segment]], options: SearchOptions
    ) -> Iterator[list[list[Hypothesis]]]:
        """The searcher's hypotheses of a window's batches, whose progress is shown."""
        read = [token for batch in batches for segment in batch for token in segment.source[:-1]]
        self.progress.begin(window, len(read), read.count(Dictionary.unk_index))
        sizes = [sum(len(segment.source) for segment in batch) for batch in batches]
        done = 0
        for size, found in zip(sizes, searcher(batches, options), strict=True):
            done += size
            self.progress.batch(window, done / sum(sizes), sum(len(each[0].tokens) for each in found))
            yield found

    def _windows(self, job: Job, wait: float | None) -> Iterator[Window]:
        windows = read_windows(job.inputs, lines=self.batches.buffer_size, characters=WINDOW_CHARACTERS, wait=wait)
        return self.ranks.share(windows)


def translate_window(
    translator: Translator,
    lines: Sequence[str],
    options: SearchOptions,
    batches: BatchSettings,
    *,
    number: int,
    searcher: Searcher | None = None,
) -> list[Translation]:
    """Translates a window. Sampling has a seed per window, so a resumed translation draws the same tokens."""
    options = options.of_part(number)
    sources = translator.read(
        lines,
        options,
        split_sentences=batches.split_sentences,
        too_long=batches.too_long,
        limit=batches.max_source_positions,
    )
    max_tokens = MAX_TOKENS if batches.max_tokens is None else batches.max_tokens
    return translator.search(sources, options, max_tokens=max_tokens, searcher=searcher)


def translate_stream(
    windows: Iterable[Window], translate: Translate, *, form: LineForm, write: Write, report: Report, ahead: int = 0
) -> None:
    """Translates and writes windows in order.

    :param write: called with a window and its formatted translations in UTF-8.
    :param report: called with a window, its translations and their duration in seconds.
    :param ahead: number of windows that threads read and translate before an earlier one is written. With 0 a window is
        written before the next one is read.
    :raises ValueError: an error of `translate`, with the number of the line.
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
    """Windows, their translations, and the time when each was read. An error comes after the windows before it."""
    if not ahead:  # in this thread, which an interrupt stops immediately
        for window in windows:
            since = time.perf_counter()
            yield window, _translated(window, translate), since
        return
    from concurrent.futures import ThreadPoolExecutor

    pool = ThreadPoolExecutor(ahead + 1)
    pending: deque[tuple[Window, Future[Sequence[Translation]], float]] = deque()
    try:
        for found in _until_error(windows):
            if isinstance(found, Window):
                pending.append((found, pool.submit(_translated, found, translate), time.perf_counter()))
            while pending and (len(pending) > ahead or not isinstance(found, Window)):
                first, future, since = pending.popleft()
                yield first, future.result(), since
            if isinstance(found, Exception):
                raise found
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _until_error(windows: Iterable[Window]) -> Iterator[Window | Exception | None]:
    """The windows, then the error that ended them, or None."""
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


@contextmanager
def _stream(output: Path | None) -> Iterator[Write]:
    """A function that writes to the standard output, or to a pipe or device."""
    name = "standard output" if output is None else str(output)
    descriptor = 1 if output is None else os.open(output, os.O_WRONLY)
    try:
        yield lambda _, text: write_all(descriptor, text, name)
    finally:
        if output is not None:
            os.close(descriptor)
