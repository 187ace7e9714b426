"""The unfinished output of a killed process can be resumed, wherever it was killed."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace

import pytest
import torch

from rskip.files.lock import one_at_a_time
from rskip.files.resumable import (
    OtherInputError,
    ResumableFile,
    StoppedError,
    check_unfinished,
    part_path,
    unfinished_parts,
    written_windows,
)
from rskip.files.windows import read_windows
from rskip.generation import Hypothesis, SearchOptions
from rskip.settings.errors import SettingError
from rskip.translation.files import FoundBatch, WindowSearcher, translate_stream
from rskip.translation.search import Segment
from rskip.translation.terminal import TranslationProgress
from rskip.translation.translation import SentenceError, TranslatedHypothesis, Translation, line_form

SETTINGS = {"beam": 4, "unknown_penalty": float("inf"), "names": ["a", "b"]}
TEXT = "".join(f"{number} {'ä' * (number % 5)}\n" for number in range(23))


def upper(window):
    """A translation that shows which window it was made in, as a real one's rounding could."""
    texts = [f"{line.upper()} {window.number}/{len(window.lines)}" for line in window.lines]
    return [
        Translation(line, (TranslatedHypothesis(text, -1.0, ()),))
        for line, text in zip(window.lines, texts, strict=True)
    ]


def translated(folder, *, resume, translate=upper, settings=SETTINGS, lines=4):
    """Translates folder/input to folder/output and gives the numbers of the windows that were translated."""
    done = []

    def counted(window):
        done.append(window.number)
        return translate(window)

    windows = read_windows([folder / "input"], lines=lines, characters=10**9)
    file = ResumableFile(folder / "output.partial", settings, resume=resume)
    try:
        form = line_form(as_json=False, scores=False, nbest=1)
        translate_stream(file.missing(windows), counted, form=form, write=file.write, report=lambda *_: None)
        file.finish(folder / "output")
    finally:
        file.close()
    return done


def window(folder, number, lines=4):
    return list(read_windows([folder / "input"], lines=lines, characters=10**9))[number]


class Killed(BaseException):
    pass


def killed_in(number):
    def translate(window):
        if window.number == number:
            raise Killed
        return upper(window)

    return translate


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "input").write_text(TEXT, encoding="utf-8")
    return tmp_path


@pytest.fixture
def expected(tmp_path_factory):
    folder = tmp_path_factory.mktemp("uninterrupted")
    (folder / "input").write_text(TEXT, encoding="utf-8")
    assert translated(folder, resume=False) == [0, 1, 2, 3, 4, 5]
    assert sorted(path.name for path in folder.iterdir()) == ["input", "output"]
    return (folder / "output").read_bytes()


@pytest.fixture
def without_fsync(monkeypatch):
    """For what is done hundreds of times."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def test_a_window_is_in_the_journal_when_it_is_on_the_disk(folder, expected, monkeypatch):
    synced = []

    def fsync(descriptor):
        entries = list(written_windows(folder / "output.partial"))
        synced.append((os.fstat(descriptor).st_size, len(entries)))

    monkeypatch.setattr(os, "fsync", fsync)
    translated(folder, resume=False)
    lines = expected.splitlines(keepends=True)
    ends = [len(b"".join(lines[:count])) for count in (4, 8, 12, 16, 20, 23)]
    assert synced == list(zip(ends, range(6), strict=True))


@pytest.mark.parametrize("number", range(6))
def test_what_was_killed_in_a_window_goes_on_with_it(folder, expected, number):
    with pytest.raises(Killed):
        translated(folder, resume=False, translate=killed_in(number))
    assert (folder / "output.partial").read_bytes() == b"".join(expected.splitlines(keepends=True)[: 4 * number])
    assert not (folder / "output").exists()
    assert translated(folder, resume=True) == list(range(number, 6))
    assert (folder / "output").read_bytes() == expected
    assert sorted(path.name for path in folder.iterdir()) == ["input", "output"]


def test_output_torn_at_any_byte(folder, expected, without_fsync):
    """The journal knows of windows that are on the disk, at most; the output may have more than it knows."""
    with pytest.raises(Killed):
        translated(folder, resume=False, translate=killed_in(4))
    output, journal = folder / "output.partial", folder / "output.partial.journal"
    whole, entries = output.read_bytes(), journal.read_bytes()
    ends = [0, *(entry.bytes for entry in written_windows(output))]
    for size in range(len(whole) + 1):
        output.write_bytes(whole[:size])
        journal.write_bytes(entries)
        kept = sum(end <= size for end in ends) - 1
        assert translated(folder, resume=True) == list(range(kept, 6))
        assert (folder / "output").read_bytes() == expected


def test_journal_torn_at_any_byte_behind_its_first_line(folder, expected, without_fsync):
    with pytest.raises(Killed):
        translated(folder, resume=False, translate=killed_in(4))
    output, journal = folder / "output.partial", folder / "output.partial.journal"
    whole, entries = output.read_bytes(), journal.read_bytes()
    first = entries.index(b"\n") + 1
    for size in range(first, len(entries) + 1):
        output.write_bytes(whole + b"torn")
        journal.write_bytes(entries[:size] + (b"", b"\0", b"\0\n")[size % 3])  # zeros, as after a power cut
        assert translated(folder, resume=True) == list(range(entries[first:size].count(b"\n"), 6))
        assert (folder / "output").read_bytes() == expected


@pytest.mark.parametrize("journal", [None, b"", b'{"beam": 4, "unk'])
def test_killed_before_the_first_window(folder, expected, journal):
    (folder / "output.partial").touch()
    if journal is not None:
        (folder / "output.partial.journal").write_bytes(journal)
    assert unfinished_parts(folder / "output") == []
    assert translated(folder, resume=False) == list(range(6))
    assert (folder / "output").read_bytes() == expected


def test_killed_again_and_again(folder, expected):
    with pytest.raises(Killed):
        translated(folder, resume=False, translate=killed_in(1))
    for number in (1, 3, 4):
        with pytest.raises(Killed):
            translated(folder, resume=True, translate=killed_in(number))
    assert translated(folder, resume=True) == [4, 5]
    assert (folder / "output").read_bytes() == expected


def test_nothing_to_go_on_with_is_a_beginning(folder, expected):
    assert translated(folder, resume=True) == list(range(6))
    assert (folder / "output").read_bytes() == expected


@pytest.fixture
def unfinished(folder):
    with pytest.raises(Killed):
        translated(folder, resume=False, translate=killed_in(3))
    return folder


def state(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name.startswith("output")}


def refused(folder, message, **arguments):
    """What is refused changes nothing."""
    before = state(folder)
    with pytest.raises(ValueError, match=message):
        translated(folder, **arguments)
    assert state(folder) == before


def test_an_unfinished_output_is_not_overwritten(unfinished):
    refused(unfinished, r"output\.partial is left from an interrupted run; use resume; or ", resume=False)


def test_other_settings_are_named(unfinished):
    other = {**SETTINGS, "beam": 5, "seed": 1}
    refused(unfinished, r"other settings \(beam: 4, now 5; seed: not set, now 1\)", resume=True, settings=other)


def test_another_input_is_refused(unfinished):
    for text in (TEXT.replace("3 ", "X "), TEXT[1:], "\n" + TEXT):
        (unfinished / "input").write_text(text, encoding="utf-8")
        refused(unfinished, r"another input: the first 12 lines differ", resume=True)
    for text in ("", "0 \n", "".join(TEXT.splitlines(True)[:11])):
        (unfinished / "input").write_text(text, encoding="utf-8")
        refused(unfinished, r"another input: it now ends before line 12; use the same input", resume=True)


def test_what_comes_behind_the_translated_lines_may_have_changed(unfinished):
    (unfinished / "input").write_text("".join(TEXT.splitlines(True)[:12]) + "repaired\n", encoding="utf-8")
    assert translated(unfinished, resume=True) == [3]
    assert (unfinished / "output").read_text(encoding="utf-8").splitlines()[-1] == "REPAIRED 3/1"


def test_a_damaged_line_that_is_repaired(folder, expected):
    """What came before it is written at once, and translated again with its whole window."""
    lines = TEXT.encode().splitlines(keepends=True)
    (folder / "input").write_bytes(b"".join([*lines[:10], b"\xff\n", *lines[11:]]))
    with pytest.raises(ValueError, match="line 11 is not valid UTF-8"):
        translated(folder, resume=False)
    assert (folder / "output.partial").read_text(encoding="utf-8").splitlines()[7:] == [
        "7 ÄÄ 1/4", "8 ÄÄÄ 2/2", "9 ÄÄÄÄ 2/2",
    ]  # fmt: skip
    (folder / "input").write_text(TEXT, encoding="utf-8")
    assert translated(folder, resume=True) == [2, 3, 4, 5]
    assert (folder / "output").read_bytes() == expected


def test_a_partial_without_its_journal_is_refused(unfinished):
    (unfinished / "output.partial.journal").unlink()
    refused(unfinished, r"output\.partial\.journal is missing: delete ", resume=True)


@pytest.mark.parametrize("resume", [False, True])
def test_one_process_at_a_time(unfinished, resume):
    with one_at_a_time(unfinished / "output.partial"):
        refused(unfinished, "another process is writing .*output.partial", resume=resume)
        with pytest.raises(ValueError, match="another process is writing"):
            check_unfinished(unfinished / "output", 0, 1, resume=resume)
    check_unfinished(unfinished / "output", 0, 1, resume=True)


def test_parts_of_another_number_of_processes_are_refused(unfinished):
    output = unfinished / "output"
    with pytest.raises(ValueError, match="started with another number of processes than 2"):
        check_unfinished(output, 0, 2, resume=True)
    shutil.move(unfinished / "output.partial", part_path(output, 1, 2))
    with one_at_a_time(part_path(output, 1, 2)):
        check_unfinished(output, 0, 2, resume=True)  # the other process may be looking at its own part just now
        with pytest.raises(ValueError, match="another process is writing"):
            check_unfinished(output, 1, 2, resume=True)
    with pytest.raises(ValueError, match=r"output\.partial-2of2 is left from an interrupted run"):
        check_unfinished(output, 0, 2, resume=False)
    with pytest.raises(ValueError, match=r"output\.partial-2of2 was started with another number"):
        check_unfinished(output, 0, 1, resume=True)
    (unfinished / "output.partial-2of2").unlink()
    (unfinished / "output.partial-merged").write_text("left of a killed process")
    check_unfinished(output, 0, 1, resume=False)
    check_unfinished(unfinished / "no-folder" / "output", 0, 1, resume=False)


def test_a_finished_output_is_replaced_only_when_the_new_one_is_whole(folder, expected):
    (folder / "output").write_text("old")
    with pytest.raises(Killed):
        translated(folder, resume=False, translate=killed_in(5))
    assert (folder / "output").read_text() == "old"
    translated(folder, resume=True)
    assert (folder / "output").read_bytes() == expected


def test_a_sentence_that_is_refused_is_named_by_its_line(folder):
    def refuse(window):
        if window.number == 2:
            raise SentenceError(3, "it has 1,200 tokens")
        return upper(window)

    with pytest.raises(ValueError, match=r"input: line 11: it has 1,200 tokens$"):
        translated(folder, resume=False, translate=refuse)
    assert len((folder / "output.partial").read_text(encoding="utf-8").splitlines()) == 8


def test_the_journal_is_json_lines(unfinished):
    first, *rest = [json.loads(line) for line in (unfinished / "output.partial.journal").read_text().splitlines()]
    assert first == SETTINGS
    assert [(entry["window"], entry["lines"]) for entry in rest] == [(0, 4), (1, 8), (2, 12)]
    assert rest[-1]["bytes"] == os.path.getsize(unfinished / "output.partial")


@pytest.mark.parametrize(
    ("number", "changes", "said"),
    [
        (1, {"bytes": "x"}, "line 2: bytes is 'x': expected a whole number, 0 or more"),
        (2, {"bytes": None}, "line 3: bytes is None: expected a whole number, 0 or more"),
        (2, {"lines": 8.5}, "line 3: lines is 8.5: expected a whole number, 1 or more"),
        (2, {"lines": True}, "line 3: lines is True: expected a whole number, 1 or more"),
        (2, {"windw": 1}, "line 3: unknown key windw"),
        (2, {"bytes": 10**9}, r"bytes is \d+: expected 1000000000 or more, as in the line before"),
        (3, {"lines": 2}, "lines is 2: expected 8 or more, as in the line before"),
        (3, {"window": 10**30}, None),
        (3, {"bytes": "x"}, None),
        (3, {"bytes": 100}, "bytes is 100, inside a line: expected the end of a line"),
    ],
)
def test_a_damaged_journal_is_refused_or_its_end_made_again(number, changes, said, unfinished, expected):
    """If intact lines follow a damaged line, nothing is removed from the output."""
    journal, output = (unfinished / f"output.partial{end}" for end in (".journal", ""))
    lines, before = journal.read_text().splitlines(), output.read_bytes()
    lines[number] = json.dumps({**json.loads(lines[number]), **changes})
    journal.write_text("".join(f"{line}\n" for line in lines))
    if said is None:
        assert translated(unfinished, resume=True) == [2, 3, 4, 5]
        assert (unfinished / "output").read_bytes() == expected
    else:
        message = rf"output\.partial\.journal.*{said}; delete .*/output\.partial to start again$"
        refused(unfinished, message, resume=True)
        assert output.read_bytes() == before


BATCHES = [[Segment([number, 2], [])] for number in range(4)]


def searched(batches, options):
    """Other scores than those of the plain numbers would be."""
    for batch in batches:
        yield [[Hypothesis(torch.tensor(batch[0].source), -batch[0].source[0] / 3)]]


def searched_until(stop):
    """A search that is interrupted in the batch of that number, and what it has searched."""
    done = []

    def search(batches, options):
        for batch in batches:
            if batch[0].source[0] == stop:
                raise KeyboardInterrupt
            done.append(batch[0].source[0])
            yield from searched([batch], options)

    return search, done


def watched(file, of, search):
    progress = TranslationProgress(total=None, live=False)
    progress.begin(of, [()] * len(of.lines))
    searcher = WindowSearcher(search, of, progress, file.batches(of, FoundBatch))
    return [found[0][0] for found in searcher(BATCHES, SearchOptions())]


def test_batches_of_an_unfinished_window_are_kept(folder):
    first, expected = window(folder, 0), [each[0][0] for each in searched(BATCHES, None)]
    search, _ = searched_until(2)
    with pytest.raises(StoppedError), ResumableFile(folder / "output.partial", SETTINGS, resume=False) as file:
        watched(file, first, search)
    assert unfinished_parts(folder / "output") == [folder / "output.partial"]

    # a torn line, as a killed process leaves it, is searched again
    with (folder / "output.partial.window0").open("a") as journal:
        journal.write('{"found": [[[[2')
    search, done = searched_until(None)
    with ResumableFile(folder / "output.partial", SETTINGS, resume=True) as file:
        found = watched(file, first, search)
        assert done == [2, 3]
        assert [(each.tokens.tolist(), each.score) for each in found] == [
            (each.tokens.tolist(), each.score) for each in expected
        ]
        file.write(first, b"0\n1\n2\n3\n")
        assert not list(folder.glob("*.window*"))


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([[[[[0, "2"], -1.0, None, None]]], None], r"line 2: found\[0\]\[0\]\[0\]\[1\] is '2': expected a whole .*"),
        ([[[[[0, 2], -1.0, None]]], None], r"line 2: found\[0\]\[0\] is .*: expected a list of 4: .*"),
        ([[], None], ": found doesn't match the window: expected 4 batches with the window's numbers of segments"),
        ([None] * 5, ": found doesn't match the window: expected 4 batches with the window's numbers of segments"),
    ],
)
def test_a_damaged_journal_of_batches_is_refused(entries, said, folder):
    first, whole, path = window(folder, 0), [[[[0, 2], -1.0, None, None]]], folder / "output.partial"
    with ResumableFile(path, SETTINGS, resume=False) as file:
        file.batches(first, FoundBatch)
    with (folder / "output.partial.window0").open("a") as journal:
        journal.writelines(json.dumps({"found": whole if found is None else found}) + "\n" for found in entries)
    message = rf"output\.partial\.window0.*{said}; delete it to translate the window again"
    stopped = pytest.raises((SettingError, StoppedError), match=message)
    with stopped, ResumableFile(path, SETTINGS, resume=True) as file:
        watched(file, first, searched)


def test_a_kill_right_after_a_window_was_written_leaves_no_journal_of_its_batches(folder):
    path = folder / "output.partial"
    with ResumableFile(path, SETTINGS, resume=False) as file:
        watched(file, window(folder, 0), searched)
        journal = (folder / "output.partial.window0").read_bytes()
        file.write(window(folder, 0), b"0\n1\n2\n3\n")
        watched(file, window(folder, 1), searched)
    (folder / "output.partial.window0").write_bytes(journal)
    with ResumableFile(path, SETTINGS, resume=True):
        assert [each.name for each in folder.glob("*.window*")] == ["output.partial.window1"]


def test_a_score_of_minus_infinity_is_kept(folder):
    def search(batches, options):
        return ([[Hypothesis(torch.tensor(batch[0].source), -float("inf"))]] for batch in batches)

    first = window(folder, 0)
    with ResumableFile(folder / "output.partial", SETTINGS, resume=False) as file:
        watched(file, first, search)
    with ResumableFile(folder / "output.partial", SETTINGS, resume=True) as file:
        assert [each.score for each in watched(file, first, searched)] == [-float("inf")] * 4


def test_batches_of_other_lines_or_settings_are_not_taken(folder):
    search, _ = searched_until(3)
    with pytest.raises(StoppedError), ResumableFile(folder / "output.partial", SETTINGS, resume=False) as file:
        watched(file, window(folder, 0), search)
    search, done = searched_until(None)
    with ResumableFile(folder / "output.partial", SETTINGS, resume=True) as file:
        watched(file, replace(window(folder, 0), sha256="other"), search)
    assert done == [0, 1, 2, 3]
    # without --resume, where somebody deleted output.partial alone, nothing of it stays
    (folder / "output.partial").unlink()
    with ResumableFile(folder / "output.partial", SETTINGS | {"beam": 5}, resume=False):
        assert not list(folder.glob("*.window*"))


def test_other_settings_are_refused_before_the_first_window_is_done(folder):
    path, (search, _) = folder / "output.partial", searched_until(3)
    with pytest.raises(StoppedError), ResumableFile(path, SETTINGS, resume=False) as file:
        watched(file, window(folder, 0), search)
    message = r"other settings \(beam: 4, now 5\): use the same settings"
    refused(folder, message, resume=True, settings={**SETTINGS, "beam": 5})


def test_changed_lines_of_an_unfinished_window_are_noted(folder):
    path, notes, (search, _) = folder / "output.partial", [], searched_until(3)
    with pytest.raises(StoppedError), ResumableFile(path, SETTINGS, resume=False) as file:
        watched(file, window(folder, 0), search)
    (folder / "input").write_text("new " + TEXT, encoding="utf-8")
    with ResumableFile(path, SETTINGS, resume=True, note=notes.append) as file:
        watched(file, window(folder, 0), searched)
    changed = "lines 1 to 4 of the input have changed since the interrupted run: they are translated again"
    assert notes == [f"{path}: {changed}"]


@pytest.mark.parametrize(
    ("name", "lines", "said"),
    [
        ("other", 4, "{folder}/input, now {folder}/other"),
        ("input", 3, "{folder}/input had 4 lines or more, now 3"),
        ("input", 0, "the input is empty now"),
    ],
)
def test_batches_of_another_or_a_shorter_input_are_not_lost(name, lines, said, folder, expected):
    path, (search, _) = folder / "output.partial", searched_until(3)
    with pytest.raises(StoppedError), ResumableFile(path, SETTINGS, resume=False) as file:
        watched(file, window(folder, 0), search)
    text = (folder / "input").read_text(encoding="utf-8")
    (folder / name).write_text("".join(f"new {line}\n" for line in range(lines)), encoding="utf-8")

    def resumed(file, windows):
        for each in file.missing(windows):
            watched(file, each, searched)

    before = state(folder)
    with pytest.raises(OtherInputError) as error, ResumableFile(path, SETTINGS, resume=True) as file:
        resumed(file, read_windows([folder / name], lines=4, characters=10**9))
    advice = f"use the same input to resume, or delete {path} to start again"
    assert str(error.value) == f"{path} was made from another input: {said.format(folder=folder)}; {advice}"
    assert state(folder) == before
    path.unlink()  # as advised
    with ResumableFile(path, SETTINGS, resume=True) as file:
        assert not list(folder.glob("*.window*"))
    path.unlink()
    (folder / "input").write_text(text, encoding="utf-8")
    assert translated(folder, resume=True) == [0, 1, 2, 3, 4, 5]
    assert (folder / "output").read_bytes() == expected


def test_a_run_that_finished_nothing_starts_again_with_a_note(folder):
    path, notes = folder / "output.partial", []
    ResumableFile(path, SETTINGS, resume=False).close()
    with ResumableFile(path, {**SETTINGS, "beam": 5}, resume=True, note=notes.append):
        assert notes == [f"{path}: the interrupted run finished nothing, so this one starts again"]


@pytest.mark.parametrize(
    ("path", "sha256", "said"),
    [
        ("a", "2", r"model: a, but its files have changed since the earlier run"),
        ("b", "2", r"model: a, now b"),
        ("b", "1", None),
    ],
)
def test_another_model_is_named_by_its_path_not_its_checksum(path, sha256, said, folder, expected):
    def settings(path, sha256):
        return {"model": {"path": path, "sha256": sha256}}

    with pytest.raises(Killed):
        translated(folder, resume=False, translate=killed_in(3), settings=settings("a", "1"))
    if said is None:  # moved
        assert translated(folder, resume=True, settings=settings(path, sha256)) == [3, 4, 5]
    else:
        refused(folder, rf"\({said}\)", resume=True, settings=settings(path, sha256))
