"""Forty thousand lines need no more memory than two thousand. One pointer per line would add half as much again."""

from __future__ import annotations

import os
import tracemalloc

import pytest

from rskip.files.resumable import ResumableFile
from rskip.files.windows import read_windows
from rskip.translation.files import translate_stream
from rskip.translation.terminal import TranslationProgress
from rskip.translation.translation import TranslatedHypothesis, Translation, line_form

TEXT_LINES = line_form(as_json=False, scores=False, nbest=1)


def upper(window):
    return [Translation(line, (TranslatedHypothesis(line.upper(), 0.0, tuple(line.split())),)) for line in window.lines]


def most_memory(folder, *, lines: int, resume: bool) -> int:
    """Bytes of Python's at the peak; the first half of the output is there already where it is resumed."""
    source, output = folder / f"{lines}.in", folder / f"{lines}.out"
    with source.open("w") as file:
        file.writelines(f"{number:06} a b c d e f g h i j k l\n" for number in range(lines))
    windows = read_windows([source], lines=500, characters=10**9)
    partial = ResumableFile(folder / f"{lines}.partial", {}, resume=resume)
    if resume:
        for window in windows:
            if window.start >= lines // 2:
                break
            partial.write(window, "".join(f"{line.upper()}\n" for line in window.lines).encode())
        partial.close()
        partial = ResumableFile(folder / f"{lines}.partial", {}, resume=True)
    windows = read_windows([source], lines=500, characters=10**9)
    progress = TranslationProgress(total=None, live=False)
    tracemalloc.start()
    try:
        translate_stream(partial.missing(windows), upper, form=TEXT_LINES, write=partial.write, report=progress)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    partial.finish(output)
    partial.close()
    with source.open() as before, output.open() as after:
        assert sum(line.upper() == translated for line, translated in zip(before, after, strict=True)) == lines
    return peak


@pytest.mark.slow
def test_memory_does_not_grow_with_the_input(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    few = most_memory(tmp_path, lines=2_000, resume=False)
    assert few < 2_000_000
    assert most_memory(tmp_path, lines=40_000, resume=False) < 1.25 * few
    assert most_memory(tmp_path, lines=41_000, resume=True) < 1.25 * few
