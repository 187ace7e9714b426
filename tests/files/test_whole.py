"""Folders made whole or not at all."""

from pathlib import Path

import pytest

from rskip.files.whole import whole_folder


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def test_appears_when_the_block_ends(tmp_path: Path) -> None:
    with whole_folder(tmp_path / "a/out") as building:
        (building / "file").write_text("new")
        assert not (tmp_path / "a/out").exists()
    assert names(tmp_path) == ["a", "a/out", "a/out/file"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_nothing_is_left_of_a_failure(tmp_path: Path, error: type[BaseException]) -> None:
    with pytest.raises(error), whole_folder(tmp_path / "out") as building:
        (building / "folder").mkdir()
        (building / "folder/file").write_text("half")
        raise error
    assert names(tmp_path) == []


def test_failure_leaves_the_old_folder(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/file").write_text("old")
    with pytest.raises(ValueError), whole_folder(tmp_path / "out") as building:
        (building / "file").write_text("half")
        raise ValueError
    assert names(tmp_path) == ["out", "out/file"]
    assert (tmp_path / "out/file").read_text() == "old"


def test_old_folder_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/old").write_text("old")
    with whole_folder(tmp_path / "out") as building:
        (building / "new").write_text("new")
    assert names(tmp_path) == ["out", "out/new"]


def test_old_folder_comes_back_when_the_rename_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/old").write_text("old")
    rename = Path.rename

    def fail_to_place(self: Path, target: Path) -> Path:
        if self.name == ".out.building":
            raise OSError("no")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail_to_place)
    with pytest.raises(OSError, match="no"), whole_folder(tmp_path / "out"):
        pass
    assert names(tmp_path) == ["out", "out/old"]


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".out.building/sub").mkdir(parents=True)
    (tmp_path / ".out.building/half").write_text("half")
    (tmp_path / ".out.building/sub/half").write_text("half")
    with whole_folder(tmp_path / "out") as building:
        (building / "file").write_text("new")
    assert names(tmp_path) == ["out", "out/file"]


def test_killed_between_the_renames_the_old_folder_is_kept(tmp_path: Path) -> None:
    (tmp_path / ".out.replaced").mkdir()
    (tmp_path / ".out.replaced/old").write_text("old")
    with pytest.raises(ValueError), whole_folder(tmp_path / "out"):
        raise ValueError
    assert names(tmp_path) == ["out", "out/old"]
