"""Progress on a terminal and in a log, durations, columns of text."""

from __future__ import annotations

import io
import re

import pytest

from rskip.machine.progress import Progress
from rskip.machine.terminal import columns, duration


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def work(stream: io.StringIO, **settings: object) -> str:
    with Progress("check", total=12_000, done=2_000, stream=stream, **settings) as progress:
        progress.update(3_000)
        progress.note("two lines\nof a note")
        progress.update(5_000)
    return stream.getvalue()


def test_a_terminal_gets_a_bar_with_rate_and_time_left_and_notes_above_it():
    shown = work(Terminal(), unit=" pairs")
    assert re.match(r"\rcheck:  17%\|.*\| 2000/12000 \[00:00<\?, \? pairs/s\]", shown)
    assert re.search(r"\r +\rtwo lines\nof a note\n\r?check: +42%\|.*\| 5000/12000 \[.* pairs/s\]", shown)
    assert re.search(r"83%\|.*\| 10000/12000 \[00:00<00:00, [\d.]+ pairs/s\]\n$", shown)
    assert "| 2.00k/12.0k [" in work(Terminal())  # bytes


def test_a_log_gets_a_line_now_and_then():
    lines = work(io.StringIO(), unit=" pairs", log=0).splitlines()
    assert lines[0] == "check: 2,000 of 12,000 pairs"
    assert re.fullmatch(r"check: 5,000 of 12,000 pairs, [\d.]+ pairs/s, 00:00 left", lines[1])
    assert lines[2:4] == ["two lines", "of a note"]
    assert lines[4].startswith("check: 10,000 of 12,000 pairs, ") and len(lines) == 5
    assert work(io.StringIO(), unit=" pairs", log=100).splitlines() == [lines[0], *lines[2:4]]


def test_nothing_but_notes_where_nothing_is_to_be_shown():
    note = "two lines\nof a note\n"
    assert work(io.StringIO()) == note  # in a log, if not asked for
    assert work(Terminal(), shown=False) == work(io.StringIO(), log=0, shown=False) == note


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_a_text_of_its_own_is_shown_at_once_and_cleared_at_the_end(stream):
    with Progress(own_text=True, log=100, stream=(out := stream())) as progress:
        assert out.getvalue().strip() == ""
        for text in ("one line", "another"):
            progress.set_description_str(text, refresh=False)
            progress.update()
    assert out.getvalue().strip() == "one line"
    assert (stream is Terminal) == bool(re.search(r"\r +\r$", out.getvalue()))


def test_durations():
    expected = {
        0: "0.0 s", 9.94: "9.9 s", 10: "10 s", 59.4: "59 s", 60: "1 min 0 s", 3599: "59 min 59 s", 3600: "1 h 0 min",
        90_000: "25 h 0 min",
    }  # fmt: skip
    assert {seconds: duration(seconds) for seconds in expected} == expected


def test_columns():
    rows = [["", "size", "what"], ["a long one", "7", ""], ["b", "12,000", "twelve thousand"]]
    assert columns(rows, left=(0, 2), indent="  ").splitlines() == [
        "                size  what",
        "  a long one       7",
        "  b           12,000  twelve thousand",
    ]
    assert columns([["a", "bc"], ["def", "g"]]) == "a    bc\ndef   g" and columns([]) == ""


def test_progress_in_a_log_begins_with_the_amount_of_work():
    stream = io.StringIO()
    Progress("split", total=2000, unit=" pairs", log=30, stream=stream).close()
    Progress("split", total=2000, done=500, unit=" pairs", log=30, stream=stream).close()
    assert stream.getvalue() == "split: 2,000 pairs\nsplit: 500 of 2,000 pairs\n"
    quiet = io.StringIO()
    with Progress("training", total=4, unit=" iterations", log=60, beginning=False, stream=quiet) as progress:
        progress.update()
        assert quiet.getvalue() == ""
        progress.start_t = progress.last_print_t = progress.start_t - 60
        progress.update()
    assert quiet.getvalue().startswith("training: 2 of 4 iterations, ")
