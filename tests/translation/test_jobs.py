"""Which inputs become which output."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rskip.translation.jobs import Job, known_sum, plan_jobs


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with files a, b and f/a, and g, a folder."""
    for name in ("a", "b", "f/a"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("12345" if name == "b" else "1")
    (tmp_path / "g").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_outputs(folder: Path) -> None:
    for output in (None, "-"):
        assert plan_jobs(["a", "-"], output) == [Job(("a", "-"), None)]
    assert plan_jobs(["a", "b"], "new") == [Job(("a", "b"), Path("new"))]
    for name in ("g", "g/", "new/"):
        assert plan_jobs(["a", "b"], name) == [Job(("a",), Path(name, "a")), Job(("b",), Path(name, "b"))]
    assert plan_jobs(["a"], "b") == [Job(("a",), Path("b"))]  # which is replaced when whole
    Path("link").symlink_to("b")
    assert plan_jobs(["a"], "link") == [Job(("a",), folder / "b")]  # and the link stays
    assert plan_jobs(["a"], "/dev/stdout") == [Job(("a",), None)]


def test_portuguese_text_is_not_a_checkpoint(folder: Path) -> None:
    Path("test.pt").write_text("Olá.\n", encoding="utf-8")
    assert plan_jobs(["test.pt"], None) == [Job(("test.pt",), None)]


def test_sizes_and_kinds_of_outputs(folder: Path) -> None:
    assert Job(("a", "b"), None).size == 6 and Job(("a", "/dev/null"), None).size is None
    assert known_sum([]) == 0 and known_sum([1, None]) is None and known_sum([1, 2]) == 3
    kinds = {None: False, "/dev/null": False, "a": True, "new": True}
    assert {name: Job((), None if name is None else Path(name)).to_file for name in kinds} == kinds


def test_mistakes(folder: Path) -> None:
    os.link("a", "same")
    for inputs, output, message in (
        (["none"], None, "No such file .*none"),
        (["a", "g"], None, "^g is a folder: give its files$"),
        (["a", "f/a"], "g", "^several inputs would be written to g/a: give them other names or outputs$"),
        (["-"], "g", "^the output folder g is for files, not for the standard input"),
        (["b", "a"], "a", "^a is an input: choose another output$"),
        (["a"], "same", "^same is an input"),
        (["f/a"], "f", "^f/a is an input"),
    ):
        with pytest.raises((ValueError, FileNotFoundError), match=message):
            plan_jobs(inputs, output)
