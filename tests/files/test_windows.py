"""Windows of lines."""

from __future__ import annotations

import hashlib
import os
import threading

import pytest

from rskip.files import windows as windows_module
from rskip.files.windows import read_windows

MANY = 10**9


def windows(*inputs, lines=MANY, characters=MANY, wait=None):
    return list(read_windows(inputs, lines=lines, characters=characters, wait=wait))


@pytest.fixture
def write(tmp_path):
    """Writes bytes to a file and gives its path."""

    def write(data: bytes, name: str = "input") -> str:
        (tmp_path / name).write_bytes(data)
        return str(tmp_path / name)

    return write


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (b"a", ["a"]),
        (b"a\nb\n", ["a", "b"]),
        (b"a\nb", ["a", "b"]),
        (b"\n", [""]),
        (b"a\n\n \n", ["a", "", " "]),
        ("\ufeffa\u2028b\x85\r\n\ufeffb\n".encode(), ["a\u2028b\x85", "\ufeffb"]),
        (b"a" * 200_000 + b"\nb\n", ["a" * 200_000, "b"]),
    ],
)
def test_only_a_line_feed_ends_a_line(write, data, expected):
    assert [line for window in windows(write(data)) for line in window.lines] == expected


def test_windows_say_where_they_are(write):
    first, second = write(b"1\n2\n3\n4\n5\n", "first"), write(b"6\n7\n8", "second")
    found = windows(first, second, lines=2)
    assert [window.lines for window in found] == [("1", "2"), ("3", "4"), ("5",), ("6", "7"), ("8",)]
    assert [window.number for window in found] == [0, 1, 2, 3, 4]
    assert [window.name for window in found] == [first] * 3 + [second] * 2
    assert [window.first_line for window in found] == [1, 3, 5, 1, 3]
    assert [window.start for window in found] == [0, 2, 4, 5, 7]
    assert [window.size for window in found] == [4, 4, 2, 4, 1]
    assert [window.position for window in found] == [4, 8, 10, 14, 15]
    assert found[-1].sha256 == hashlib.sha256(b"1\n2\n3\n4\n5\n6\n7\n8").hexdigest()
    assert found[1].sha256 == hashlib.sha256(b"1\n2\n3\n4\n").hexdigest()
    assert all(window.whole for window in found)


def test_long_lines_make_short_windows(write):
    data = b"aaaa\nbbbb\nc\nd\ne\nffffffffffff\ng\n"
    found = [window.lines for window in windows(write(data), lines=4, characters=8)]
    assert found == [("aaaa", "bbbb"), ("c", "d", "e", "f" * 12), ("g",)]


def test_lines_before_bad_bytes_come_first(write):
    path = write(b"1\n2\n3\n4\nab\xffc\n6\n")
    found = []
    with pytest.raises(ValueError, match=r": line 5 is not valid UTF-8 \(byte 0xff at position 3\)") as error:
        for window in read_windows([path], lines=3, characters=MANY):
            found.append((window.lines, window.whole))
    assert found == [(("1", "2", "3"), True), (("4",), False)]
    assert str(error.value).startswith(path)


@pytest.mark.parametrize("end", [b"", b"\n", b"\nb\n"])
def test_endless_lines_are_refused(write, monkeypatch, end):
    monkeypatch.setattr(windows_module, "LONGEST_LINE", 100_000)
    assert windows(write(b"1\n" + b"a" * 99_999 + b"\n"))[0].lines == ("1", "a" * 99_999)
    with pytest.raises(ValueError, match="line 2 has more than 100,000 bytes"):
        windows(write(b"1\n" + b"a" * 300_000 + end))


@pytest.fixture
def pipe(monkeypatch):
    """A pipe as standard input: gives the end to write to."""
    reading, writing = os.pipe()
    before = os.dup(0)
    os.dup2(reading, 0)
    os.close(reading)
    yield writing
    os.dup2(before, 0)
    os.close(before)


def test_a_pipe_that_pauses_ends_a_window_with_the_lines_that_are_whole(pipe):
    found = read_windows(["-"], lines=3, characters=MANY, wait=0.01)
    os.write(pipe, b"1\n2\n3\n4\nha")
    assert next(found).lines == ("1", "2", "3")
    assert next(found).lines == ("4",)
    os.write(pipe, b"lf\n6\n")
    assert next(found).lines == ("half", "6")
    os.write(pipe, b"\xc3")
    writer = threading.Timer(0.1, lambda: (os.write(pipe, b"\xa4"), os.close(pipe)))
    writer.start()
    last = next(found)
    assert (last.lines, last.name, last.first_line) == (("ä",), "standard input", 7)
    assert list(found) == []
    writer.join()


def test_without_a_wait_windows_depend_on_the_input_alone(pipe):
    def write_slowly():
        for line in (b"1\n", b"2\n3", b"\n", b"4\n"):
            os.write(pipe, line)
            threading.Event().wait(0.02)
        os.close(pipe)

    writer = threading.Thread(target=write_slowly)
    writer.start()
    assert [window.lines for window in windows("-", lines=3)] == [("1", "2", "3"), ("4",)]
    writer.join()


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError) as error:
        windows(str(tmp_path / "none"))
    assert error.value.filename == str(tmp_path / "none")
