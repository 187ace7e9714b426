"""Tasks: those of rskip are named as their folders, and CONTRIBUTING's own task runs as it stands there."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import rskip
from rskip.cli.main import main
from rskip.settings.errors import SettingError
from rskip.tasks import find_task, tasks

ROOT = Path(__file__).resolve().parents[2]


def test_a_task_is_named_as_its_folder() -> None:
    for name in ("translation", "vision", "captioning", "language_modeling"):
        assert tasks()[name].name == name
        assert (Path(rskip.__file__).parent / name / "task.py").is_file()
        assert tasks()[name].work().settings.__name__.lower() == f"{name.replace('_', '')}settings"


@pytest.mark.parametrize("name", ["visoin", None, 3, [], {}])
def test_an_unknown_name_is_told_with_the_known_ones(name: object) -> None:
    with pytest.raises(SettingError, match=r"^kind is .*: expected translation or vision or captioning .*imported$"):
        find_task(name, setting="kind")


def test_the_task_of_contributing_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    section = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Add a task\n")[2]
    (code,) = re.findall(r"^```python\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    (recipe, *_) = re.findall(r"^```yaml\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    commands = re.findall(r"^    rskip (.+)$", section.partition("## ")[0], re.MULTILINE)
    assert [line.split()[0] for line in commands] == ["run", "report"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(rskip.tasks.task, "_tasks", tasks())
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("mine").mkdir()
    Path("mine/__init__.py").write_text(code)
    Path("line.yaml").write_text(recipe)
    try:
        for line in commands:
            assert main(line.split()) == 0
    finally:
        sys.modules.pop("mine", None)
    printed = capsys.readouterr().out
    assert "  distance             0.03\n" in printed and "line     0.03 (one seed)\n" in printed
