"""The tasks that are known by name: translation, image classification, captioning, and registered ones."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rskip.settings.check import convert
from rskip.settings.errors import SettingError, nearest
from rskip.tasks.task import Task

if TYPE_CHECKING:
    from rskip.records import Record

# Imported when the task is first asked for.
_OURS = {
    "translation": "rskip.translation.task:TranslationTask",
    "image-classification": "rskip.vision.task:VisionTask",
    "image-captioning": "rskip.captioning.task:CaptioningTask",
}

_tasks: dict[str, Task[Any]] = {}


def register_task(task: Task[Any]) -> None:
    """Makes a task known by its name and its kind."""
    for other in tasks().values():
        if other.name != task.name and other.kind == task.kind:
            raise ValueError(f"the task {other.name} has the kind {task.kind!r} already")
    _tasks[task.name] = task


def tasks() -> dict[str, Task[Any]]:
    """The tasks by their names."""
    return {name: find_task(name) for name in {**_OURS, **_tasks}}


def find_task(name: str) -> Task[Any]:
    """The task that checkpoints.json calls so.

    :raises SettingError: there is none.
    """
    if name not in _tasks and name in _OURS:
        module, _, task = _OURS[name].partition(":")
        _tasks[name] = getattr(import_module(module), task)()
    if name not in _tasks:
        known = {**_OURS, **_tasks}
        near = [f"did you mean {each}?" for each in nearest(name, known)]
        advice = "; ".join([*near, "a task of one's own is known once its module is imported"])
        raise SettingError.of_value("task", name, " or ".join(known), advice=advice)
    return _tasks[name]


def task_of_kind(kind: object) -> Task[Any]:
    """The task that recipes and records call so.

    :raises SettingError: there is none.
    """
    found = [task for task in tasks().values() if task.kind == kind]
    if not found:
        kinds = [task.kind for task in tasks().values()]
        near = nearest(kind, kinds)
        raise SettingError.of_value("kind", kind, " or ".join(kinds), advice=f"did you mean {near[0]}?" if near else "")
    return found[0]


def task_of_record(record: Record) -> Task[Any]:
    """The task of a record's run.

    :raises SettingError: there is none; names the record.
    """
    try:
        return task_of_kind(record.kind)
    except SettingError as error:
        raise error.within(source=str(record.path)) from None


def dataset_of_record(record: Record) -> str:
    """What a record's run was scored on: see `Task.dataset`.

    :raises SettingError: the record's config doesn't name it. The error names the record.
    """
    task = task_of_record(record)
    convert(record.config, task.recorded, name="config", source=str(record.path))
    return task.dataset(record.config)
