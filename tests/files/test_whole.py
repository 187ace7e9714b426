"""Files and folders are written atomically, and errors of writing name the file."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from rskip.files.whole import atomic_file, put_in_place, recover, whole_folder

intercepted = pytest.mark.skipif(sys.version_info < (3, 11), reason="pathlib of Python 3.10 keeps os's own functions")


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def write_file(path: Path, text: str) -> None:
    with atomic_file(path) as temporary:
        temporary.write_text(text)


def write_folder(path: Path, name: str) -> None:
    with whole_folder(path) as building:
        (building / name).write_text(name)


def test_a_file_has_its_name_when_it_is_whole(tmp_path: Path, failing_everywhere: Any, killed_everywhere: Any) -> None:
    path = tmp_path / "folder/file"
    before = os.umask(0o027)
    try:
        write_file(path, "old")
        assert path.stat().st_mode & 0o777 == 0o640
    finally:
        assert os.umask(before) == 0o027
    for error in failing_everywhere(lambda: write_file(path, "new")):
        assert names(path.parent) == ["file"] and path.read_text() == ("old" if error else "new")
        write_file(path, "old")
    for _ in killed_everywhere(path.parent, lambda: write_file(path, "new")):
        assert path.read_text() in ("old", "new")


def test_what_is_no_file_is_named_before_the_work_begins(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError) as error, atomic_file(tmp_path):
        raise AssertionError("the block begins")
    assert error.value.filename == str(tmp_path) and not list(tmp_path.iterdir())
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match=r"a pipe or a device: expected a file: \S*pipe"), atomic_file(tmp_path / "pipe"):
        raise AssertionError("the block begins")


def test_through_a_link_the_file_it_leads_to_is_written(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("file")
    for text in ("old", "new"):
        write_file(tmp_path / "link", text)
        assert (tmp_path / "link").is_symlink() and (tmp_path / "file").read_text() == text


def test_a_file_is_made_without_changing_the_umask_of_other_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "usual").touch()
    monkeypatch.setattr(os, "umask", lambda _: pytest.fail("the umask is the whole process's"))
    with atomic_file(tmp_path / "file") as temporary:
        temporary.unlink()
        temporary.touch(mode=0o600)  # like safetensors' writer
    assert (tmp_path / "file").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_what_killed_processes_left_of_a_file_is_removed_when_it_is_written(tmp_path: Path) -> None:
    """Files of other names stay, and so does a running process's file, even one that its writer replaced."""
    path = tmp_path / "a[1].svg"
    left = [tmp_path / f".a[1].svg.{token}.partial.svg" for token in ("0123abcd", "_x9z_x9z")]
    others = [tmp_path / name for name in (".a1.svg.0123abcd.partial.svg", ".a[1].svg.0123abcd.partial.png", "b")]
    for each in (*left, *others):
        each.touch()
        os.utime(each, (0, time.time() - 25 * 60 * 60))
    with atomic_file(path) as first:
        first.unlink()
        first.write_text("first")
        write_file(path, "second")
        assert path.read_text() == "second" and first.is_file()
    assert path.read_text() == "first" and names(tmp_path) == sorted(each.name for each in (path, *others))


def test_a_files_content_reaches_the_disk_before_its_name_does(tmp_path: Path, synced: list[str]) -> None:
    write_file(tmp_path / "file", "new")
    (name,) = synced
    assert name.startswith(".file.") and names(tmp_path) == ["file"]


def test_of_two_that_write_a_folder_one_waits_and_both_are_whole(tmp_path: Path) -> None:
    """The second writer starts while the first is half done, but sees only the folder that the first has finished."""
    out = tmp_path / "out"
    half_done, seen = threading.Event(), []

    def second() -> None:
        half_done.wait()
        with whole_folder(out) as building:
            seen.append([names(building), names(out)])
            for name in ("a", "b"):
                (building / name).write_text("second")

    thread = threading.Thread(target=second)
    thread.start()
    with whole_folder(out) as building:
        (building / "a").write_text("first")
        half_done.set()
        thread.join(0.2)
        (building / "b").write_text("first")
    thread.join()
    assert seen == [[[], ["a", "b"]]]
    assert [(out / name).read_text() for name in ("a", "b")] == ["second", "second"]
    assert names(tmp_path) == ["out", "out/a", "out/b"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_failure_leaves_the_old_folder_or_none(tmp_path: Path, error: type[BaseException]) -> None:
    for before in ([], ["out", "out/old"]):
        with pytest.raises(error), whole_folder(tmp_path / "out") as building:
            (building / "folder").mkdir()
            (building / "folder/file").write_text("half")
            raise error
        assert names(tmp_path) == before
        write_folder(tmp_path / "out", "old")


@intercepted
def test_a_disk_that_fails_leaves_the_old_folder_or_the_new_one(tmp_path: Path, failing_everywhere: Any) -> None:
    out = tmp_path / "work/out"
    write_folder(out, "old")
    seen = []
    for error in failing_everywhere(lambda: write_folder(out, "new")):
        assert names(out) == ["old" if error else "new"]
        seen.append(error is None)
        write_folder(out, "old")
        assert names(out.parent) == ["out", "out/old"]
    assert seen.count(False) >= 3  # the new folder, and its name and the old one's


@intercepted
def test_killed_anywhere_the_old_folder_or_the_new_one_is_there(tmp_path: Path, killed_everywhere: Any) -> None:
    """When `recover` has looked, and the next one leaves nothing of it."""
    out = tmp_path / "work/out"
    write_folder(out, "old")
    seen = set()
    for _ in killed_everywhere(out.parent, lambda: write_folder(out, "new")):
        recover(out)
        (found,) = names(out)
        seen.add(found)
        write_folder(out, "next")
        assert names(out.parent) == ["out", "out/next"]
    assert seen == {"old", "new"}


def test_a_folder_takes_its_place_though_a_killed_process_left_the_old_one(tmp_path: Path) -> None:
    for name in ("out", ".out.replaced", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    put_in_place(tmp_path / "new", tmp_path / "out")
    assert names(tmp_path) == ["out", "out/file"] and (tmp_path / "out/file").read_text() == "new"
