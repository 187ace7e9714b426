"""Files and folders made whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from rskip.files.whole import atomic_file, put_in_place, recover, whole_folder


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


def test_a_files_content_reaches_the_disk_before_its_name_does(tmp_path: Path, synced: list[str]) -> None:
    write_file(tmp_path / "file", "new")
    (name,) = synced
    assert name.startswith(".file.") and names(tmp_path) == ["file"]


def test_a_folder_appears_when_the_block_ends(tmp_path: Path) -> None:
    with whole_folder(tmp_path / "a/out") as building:
        (building / "file").write_text("new")
        assert not (tmp_path / "a/out").exists()
    assert names(tmp_path) == ["a", "a/out", "a/out/file"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_failure_leaves_the_old_folder_or_none(tmp_path: Path, error: type[BaseException]) -> None:
    for before in ([], ["out", "out/old"]):
        with pytest.raises(error), whole_folder(tmp_path / "out") as building:
            (building / "folder").mkdir()
            (building / "folder/file").write_text("half")
            raise error
        assert names(tmp_path) == before
        write_folder(tmp_path / "out", "old")


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
