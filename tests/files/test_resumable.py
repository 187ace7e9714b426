"""An unfinished output can be resumed wherever its process was killed, also by several processes."""

from __future__ import annotations

import os
import random

import pytest

from rskip.files.lock import one_at_a_time
from rskip.files.resumable import (
    OtherInputError,
    ResumableFile,
    StoppedError,
    check_unfinished,
    merge_parts,
    part_path,
    unfinished_parts,
)
from rskip.files.windows import read_windows
from rskip.machine.ranks import Ranks

SETTINGS = {"beam": 4, "unknown_penalty": float("inf"), "names": ["a", "b"]}
LINES = [f"{number} {'ä' * (number % 5)}\n" for number in range(23)]


class Killed(BaseException):
    pass


def translated(folder, *, resume, kill=None, settings=SETTINGS, error=Killed):
    """Writes folder/input in upper case to folder/output, and returns the numbers of the windows that this took.

    A line shows its window, as the rounding of a real translation could.
    """
    done = []
    windows = read_windows([folder / "input"], lines=4, characters=10**9)
    with ResumableFile(folder / "output.partial", settings, resume=resume) as file:
        for window in file.missing(windows):
            if window.number == kill:
                raise error
            text = "".join(f"{line.upper()} {window.number}/{len(window.lines)}\n" for line in window.lines)
            file.write(window, text.encode())
            done.append(window.number)
        file.finish(folder / "output")
    return done


def state(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "input"}


def refused(folder, message, **arguments):
    """A refused run changes nothing."""
    before = state(folder)
    with pytest.raises(ValueError, match=message):
        translated(folder, **arguments)
    assert state(folder) == before


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "input").write_text("".join(LINES), encoding="utf-8")
    return tmp_path


@pytest.fixture
def unfinished(folder):
    with pytest.raises(Killed):
        translated(folder, resume=False, kill=3)
    return folder


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    folder = tmp_path_factory.mktemp("uninterrupted")
    (folder / "input").write_text("".join(LINES), encoding="utf-8")
    assert translated(folder, resume=True) == [0, 1, 2, 3, 4, 5]
    assert list(state(folder)) == ["output"]
    return (folder / "output").read_bytes()


def test_a_run_that_is_killed_in_any_window_goes_on_with_it(folder, expected):
    (folder / "output").write_text("old")
    for number in (0, 1, 1, 3, 5):
        with pytest.raises(Killed):
            translated(folder, resume=True, kill=number)
        part = folder / "output.partial"
        assert (part.read_bytes() if part.exists() else b"") == b"".join(expected.splitlines(True)[: 4 * number])
        assert (folder / "output").read_text() == "old"
    assert translated(folder, resume=True) == [5]
    assert state(folder) == {"output": expected}


@pytest.mark.parametrize("torn", ["output", "journal"])
def test_files_torn_at_any_byte(torn, folder, expected, monkeypatch):
    """A power cut may leave a window that is not in the journal, or the end of the journal as zeros."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # done hundreds of times
    with pytest.raises(Killed):
        translated(folder, resume=False, kill=4)
    output, journal = folder / "output.partial", folder / "output.partial.journal"
    whole, entries = output.read_bytes(), journal.read_bytes()
    windows = [b"".join(whole.splitlines(True)[:count]) for count in (0, 4, 8, 12, 16)]
    first = entries.index(b"\n") + 1
    for size in range(len(whole) + 1) if torn == "output" else range(first, len(entries) + 1):
        if torn == "output":
            output.write_bytes(whole[:size])
            journal.write_bytes(entries)
            kept = sum(len(window) <= size for window in windows) - 1
        else:
            output.write_bytes(whole + b"torn")
            journal.write_bytes(entries[:size] + (b"", b"\0", b"\0\n")[size % 3])
            kept = entries[first:size].count(b"\n")
        assert translated(folder, resume=True) == list(range(kept, 6))
        assert (folder / "output").read_bytes() == expected


def test_a_window_is_in_the_journal_when_it_is_on_the_disk(folder, monkeypatch):
    synced = []
    journal = folder / "output.partial.journal"
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(journal.read_text().count("\n")))
    translated(folder, resume=False)
    assert synced == [1, 2, 3, 4, 5, 6]


def test_what_is_refused(unfinished):
    refused(unfinished, r"output\.partial is left from an interrupted run; use resume; or ", resume=False)
    other = {**SETTINGS, "beam": 5, "seed": 1}
    refused(unfinished, r"other settings \(beam: 4, now 5; seed: not set, now 1\)", resume=True, settings=other)
    for lines in (["X\n", *LINES[1:]], LINES[1:], [], LINES[:11]):
        (unfinished / "input").write_text("".join(lines), encoding="utf-8")
        refused(unfinished, "another input: the first 12 lines differ", resume=True)
    journal = unfinished / "output.partial.journal"
    journal.write_text(journal.read_text().replace('"bytes"', '"bites"', 1))
    refused(unfinished, r"journal, line 2: .*; delete .*/output\.partial to start again$", resume=True)
    journal.unlink()
    refused(unfinished, r"output\.partial\.journal is missing: delete ", resume=True)


def test_lines_after_the_kept_ones_may_change(unfinished):
    (unfinished / "input").write_text("".join(LINES[:12]) + "repaired\n", encoding="utf-8")
    assert translated(unfinished, resume=True) == [3]
    assert (unfinished / "output").read_text(encoding="utf-8").splitlines()[-1] == "REPAIRED 3/1"


def test_a_window_before_a_damaged_line_is_repeated(folder, expected):
    (folder / "input").write_bytes("".join(LINES[:10]).encode() + b"\xff\n")
    with pytest.raises(StoppedError, match="line 11 is not valid UTF-8.*the first 8 lines are in") as error:
        translated(folder, resume=False)
    assert error.value.lines == 8 and len((folder / "output.partial").read_text().splitlines()) == 10
    (folder / "input").write_text("".join(LINES), encoding="utf-8")
    assert translated(folder, resume=True) == [2, 3, 4, 5]
    assert (folder / "output").read_bytes() == expected


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError, ValueError, OtherInputError])
def test_only_finished_work_is_kept(error, folder):
    with pytest.raises(error):
        translated(folder, resume=False, kill=0, error=error)
    assert state(folder) == {}
    stopped = error if error is OtherInputError else StoppedError
    with pytest.raises(stopped):
        translated(folder, resume=False, kill=1, error=error)
    assert unfinished_parts(folder / "output") == [folder / "output.partial"]


@pytest.mark.parametrize(
    ("path", "sha256", "said"),
    [("a", "2", "model: a, but its files have changed since the earlier run"), ("b", "2", "model: a, now b"),
     ("b", "1", None)],
)  # fmt: skip
def test_another_model_is_named_by_its_path_not_its_checksum(path, sha256, said, folder):
    with pytest.raises(Killed):
        translated(folder, resume=False, kill=3, settings={"model": {"path": "a", "sha256": "1"}})
    settings = {"model": {"path": path, "sha256": sha256}}
    if said is None:  # moved
        assert translated(folder, resume=True, settings=settings) == [3, 4, 5]
    else:
        refused(folder, rf"\({said}\)", resume=True, settings=settings)


@pytest.mark.parametrize("resume", [False, True])
def test_one_process_at_a_time(unfinished, resume):
    with one_at_a_time(unfinished / "output.partial"):
        refused(unfinished, "output.partial is locked by another process", resume=resume)
        with pytest.raises(ValueError, match="locked by another process"):
            check_unfinished(unfinished / "output", 0, 1, resume=resume)
    check_unfinished(unfinished / "output", 0, 1, resume=True)


def test_parts_of_another_number_of_processes_are_refused(unfinished):
    output = unfinished / "output"
    with pytest.raises(ValueError, match="another number of processes than 2"):
        check_unfinished(output, 0, 2, resume=True)
    (unfinished / "output.partial").rename(part_path(output, 1, 2))
    with one_at_a_time(part_path(output, 1, 2)):
        check_unfinished(output, 0, 2, resume=True)  # the other process may be looking at its own part just now
    with pytest.raises(ValueError, match=r"output\.partial-2of2 is left from an interrupted run"):
        check_unfinished(output, 0, 2, resume=False)
    with pytest.raises(ValueError, match=r"output\.partial-2of2 was started with another number"):
        check_unfinished(output, 0, 1, resume=True)
    check_unfinished(unfinished / "no-folder" / "output", 0, 1, resume=False)


def write_part(ranks, folder, stop=10**9):
    random.seed(0)
    windows = ranks.share(read_windows([folder / "input"], lines=1, characters=10**9))
    with ResumableFile(part_path(folder / "output", ranks.rank, ranks.count), {}, resume=True) as file:
        for window in file.missing(windows):
            if window.number >= stop:
                raise Killed
            file.write(window, (LINES[window.start] * random.randint(1, 3)).encode())


@pytest.mark.parametrize("count", [2, 4, 20])
def test_parts_become_one_output_in_the_order_of_the_input(folder, count):
    for rank in range(count):
        with pytest.raises(ValueError, match=rf"output\.partial-{rank + 1}of{count} is missing"):
            merge_parts(folder / "output", count)
        if rank == 1:
            with pytest.raises(Killed):
                write_part(Ranks(rank, count), folder, stop=rank + count)
        write_part(Ranks(rank, count), folder)
    (folder / "output.partial-merged").write_text("left of a killed process")
    merge_parts(folder / "output", count)
    lines = (folder / "output").read_text(encoding="utf-8").splitlines(True)
    assert list(dict.fromkeys(lines)) == LINES
    assert lines == sorted(lines, key=lambda line: int(line.split()[0]))
    assert list(state(folder)) == ["output"]
