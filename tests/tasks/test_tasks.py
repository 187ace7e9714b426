"""A contract of all tasks: one name, that of its folder, and methods that can be called as `Task` says."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import rskip
from rskip.settings.errors import SettingError
from rskip.tasks import Task, find_task, imported, tasks

TASKS = tasks()


@pytest.mark.parametrize("name", TASKS)
def test_a_task_is_named_as_its_folder(name: str) -> None:
    assert TASKS[name].name == name
    assert (Path(rskip.__file__).parent / name / "task.py").is_file()


@pytest.mark.parametrize("name", TASKS)
def test_imported_methods_are_there_with_the_parameters_of_the_interface(name: str) -> None:
    task = TASKS[name]
    methods = [each for each, value in vars(type(task)).items() if isinstance(value, imported) and each != "settings"]
    assert {"train", "score", "diverged", "scored_file", "export_weights", "describe"} <= {*methods}
    for method in methods:
        given = inspect.signature(getattr(task, method))
        of_interface = inspect.signature(getattr(Task, method).__get__(task))
        parameters = [[(each.name, each.kind) for each in one.parameters.values()] for one in (given, of_interface)]
        assert parameters[0] == parameters[1], method
    assert isinstance(task.settings, type)


@pytest.mark.parametrize("name", ["visoin", None, 3, [], {}])
def test_an_unknown_name_is_told_with_the_known_ones(name: object) -> None:
    with pytest.raises(SettingError, match=r"^kind is .*: expected translation or vision or captioning .*imported$"):
        find_task(name, setting="kind")
