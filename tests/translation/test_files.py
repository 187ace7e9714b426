"""What is written: forms of lines, progress, and a conversation."""

from __future__ import annotations

import io
import json
import re
import threading

import pytest

from rskip.files.windows import Window
from rskip.translation.files import translate_stream
from rskip.translation.terminal import TranslationProgress, converse, speed
from rskip.translation.translation import SentenceError, TranslatedHypothesis, Translation, line_form

BEST = TranslatedHypothesis("Ein Hünd.", -0.12345, ("Ein", "Hünd", "."), (-0.1, -0.2, -0.3, -0.4), ((0, 0), (1, 1)))
SECOND = TranslatedHypothesis("zwei\nZeilen\u2028", -1.0, ("zwei",))
TRANSLATION = Translation("A dög.", (BEST, SECOND), notes=("cut",), source_tokens=("A", "dög", "."))
BLANK = Translation(" ", (TranslatedHypothesis("", 0.0, ()),))


@pytest.mark.parametrize(
    ("scores", "nbest", "line", "blank"),
    [
        (False, 1, "Ein Hünd.\n", "\n"),
        (True, 1, "-0.1235\tEin Hünd.\n", "0.0000\t\n"),
        (False, 2, "7\t-0.1235\tEin Hünd.\n7\t-1.0000\tzwei Zeilen \n", "7\t0.0000\t\n" * 2),
        (True, 2, "7\t-0.1235\tEin Hünd.\n7\t-1.0000\tzwei Zeilen \n", "7\t0.0000\t\n" * 2),
    ],
)
def test_text_forms(scores, nbest, line, blank):
    form = line_form(as_json=False, scores=scores, nbest=nbest)
    assert form(TRANSLATION, 7) == line
    assert form(BLANK, 7) == blank


def test_json_has_everything_on_one_line():
    line = line_form(as_json=True, scores=True, nbest=2)(TRANSLATION, 7)
    assert line.endswith("\n") and line.count("\n") == 1 and "ü" in line
    best = {
        "text": "Ein Hünd.",
        "score": -0.12345,
        "tokens": ["Ein", "Hünd", "."],
        "token_scores": [-0.1, -0.2, -0.3, -0.4],
        "alignment": [[0, 0], [1, 1]],
    }
    second = {"text": SECOND.text, "score": -1.0, "tokens": ["zwei"], "token_scores": None, "alignment": None}
    assert json.loads(line) == {
        "source": "A dög.",
        "source_tokens": ["A", "dög", "."],
        "hypotheses": [best, second],
        "notes": ["cut"],
    }


def window(number, lines, position, size, first_line=1):
    return Window(
        number=number,
        name="input",
        first_line=first_line,
        start=0,
        lines=("x",) * lines,
        size=size,
        position=position,
        sha256="",
    )


@pytest.mark.parametrize("ahead", [0, 1, 3])
def test_windows_are_written_in_order_and_no_more_are_read_ahead_than_asked(ahead):
    written, read, most = [], 0, 0
    first_can_end = threading.Event()

    def windows():
        nonlocal read, most
        for number in range(6):
            read += 1
            most = max(most, read - len(written))
            if number == ahead:  # what comes later may end before the first
                first_can_end.set()
            yield window(number, lines=1, position=0, size=1)
        raise ValueError("line 7 is damaged")

    def translate(each):
        if each.number == 0:
            assert first_can_end.wait(10)
        return [Translation("x", (TranslatedHypothesis(str(each.number), 0.0, ()),))]

    with pytest.raises(ValueError, match="line 7"):
        translate_stream(
            windows(),
            translate,
            form=line_form(as_json=False, scores=False, nbest=1),
            write=lambda _, text: written.append(text),
            report=lambda *_: None,
            ahead=ahead,
        )
    assert written == [b"0\n", b"1\n", b"2\n", b"3\n", b"4\n", b"5\n"]
    assert most == ahead + 1


def hypothesis(tokens):
    return TranslatedHypothesis("x", -1.0, ("x",) * tokens)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_tells_speed_share_and_time_left():
    stream = io.StringIO()
    progress = TranslationProgress(total=1000, live=True, every=0, stream=stream)
    progress(window(0, 10, 100, 100), [Translation("x", (hypothesis(4), hypothesis(9)))] * 10, 2.0)
    progress(window(1, 20, 250, 150), [Translation("x", (hypothesis(6),))] * 20, 4.0)
    progress.end()
    assert stream.getvalue().splitlines() == [
        "10 lines   5.0 sentences/s   20 tokens/s   10 %   18 s left",
        "30 lines   5.0 sentences/s   27 tokens/s   25 %   18 s left",
    ]


def test_progress_of_a_resumed_share_of_several_inputs():
    """Time left follows from what was done now, not from what an earlier run did; two processes share the work."""
    stream = io.StringIO()
    progress = TranslationProgress(total=2000, live=True, ranks=2, every=0, stream=stream)
    progress.before = 1000
    progress(window(8, 10, 500, 100), [Translation("x", (hypothesis(1),))] * 10, 2.0)
    assert stream.getvalue() == "20 lines   10.0 sentences/s   10 tokens/s   75 %   10 s left\n"


def test_progress_within_a_window(monkeypatch):
    """Batch by batch, and step by step in a batch that takes long."""
    now = [100.0]
    monkeypatch.setattr("rskip.translation.terminal.time.perf_counter", lambda: now[0])
    stream = io.StringIO()
    progress = TranslationProgress(total=1000, live=True, every=0, stream=stream)
    whole = window(0, 10, 100, 100)
    progress.begin(whole)
    for step, second in ((1, 100.5), (2, 101.5), (3, 102.0)):
        now[0] = second
        progress.step(step)
    progress.batch(whole, 0.5, 20)
    now[0] = 104.0
    split = Translation("x", (hypothesis(4),), notes=("split", "stopped"))
    progress(whole, [split, *[Translation("x", (hypothesis(4),))] * 9], 4.0)
    progress.end()
    assert stream.getvalue().splitlines() == [
        "0 lines   0.0 sentences/s   0 tokens/s   at token 2",
        "5 lines   2.5 sentences/s   10 tokens/s   5 %   38 s left",
        "input: line 1: split",
        "input: line 1: stopped",
        "10 lines   2.5 sentences/s   10 tokens/s   10 %   36 s left",
    ]


def test_progress_on_a_terminal_is_one_line_that_notes_do_not_tear():
    stream = Terminal()
    progress = TranslationProgress(total=None, live=True, stream=stream)
    progress(window(0, 1, 1, 1, first_line=41), [Translation("x", (hypothesis(1),), notes=("cut", "split"))], 1.0)
    progress.end()
    assert re.fullmatch(
        r"\s*input: line 41: cut\n\s*input: line 41: split\n\s*\r1 lines   1.0 sentences/s   1 tokens/s\s*\r\s*\r",
        stream.getvalue(),
    )


def test_notes_are_told_without_progress_but_not_without_end():
    stream = io.StringIO()
    progress = TranslationProgress(total=None, live=False, stream=stream)
    for number in range(5):
        noted = [Translation("x", (hypothesis(1),), notes=("cut",))] * 5
        progress(window(number, 5, 5, 5, first_line=5 * number + 1), noted, 1.0)
    progress.end()
    *told, last = stream.getvalue().splitlines()
    assert told == [f"input: line {number}: cut" for number in range(1, 21)]
    assert last == "(5 more such lines)"
    quiet = io.StringIO()
    progress = TranslationProgress(total=None, live=False, notes=False, stream=quiet)
    progress(window(0, 5, 5, 5), noted, 1.0)
    progress.end()
    assert quiet.getvalue() == ""


def test_speed_in_no_time_is_a_number():
    assert speed(0, 0, 0.0) == "0.0 sentences/s   0 tokens/s"
    assert speed(3000, 60_000, 2.0) == "1,500.0 sentences/s   30,000 tokens/s"


def test_a_conversation_goes_on_after_mistakes_and_interrupts():
    typed = iter(["A dog.", "  ", KeyboardInterrupt(), "long", UnicodeDecodeError("utf-8", b"\xff", 0, 1, "x"), "slow",
                  "A cat.", EOFError(), "never"])  # fmt: skip
    written = []

    def read(prompt):
        assert prompt == "en-de> "
        value = next(typed)
        if isinstance(value, BaseException):
            raise value
        return value

    def translate(sentence):
        if sentence == "long":
            raise SentenceError(1, "it has 5,000 tokens")
        if sentence == "slow":
            raise KeyboardInterrupt
        return f"{sentence.upper()}\n"

    converse(translate, prompt="en-de> ", read=read, write=written.append)
    assert written == [
        "A DOG.\n", "\n", "(it has 5,000 tokens)\n", "(not valid UTF-8: set the terminal to UTF-8)\n", "\n",
        "A CAT.\n", "\n",
    ]  # fmt: skip
    assert next(typed) == "never"
