"""The tasks by name: translation, vision, captioning, language_modeling, and those that users register."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rskip.settings.errors import SettingError, errors_about, nearest
from rskip.tasks.task import Task

if TYPE_CHECKING:
    from rskip.records import Record

# Each is imported on first use.
_OURS = {
    "translation": "rskip.translation.task:TranslationTask",
    "vision": "rskip.vision.task:VisionTask",
    "captioning": "rskip.captioning.task:CaptioningTask",
    "language_modeling": "rskip.language_modeling.task:LanguageModelingTask",
}

_tasks: dict[str, Task[Any]] = {}


def register_task(task: Task[Any]) -> None:
    """Registers a task under its name."""
    _tasks[task.name] = task


def tasks() -> dict[str, Task[Any]]:
    """The tasks by their names."""
    return {name: find_task(name) for name in {**_OURS, **_tasks}}


def find_task(name: object, *, setting: str = "task") -> Task[Any]:
    """The task of that name.

    :param setting: the setting that holds the name, for errors.
    :raises SettingError: the name is unknown.
    """
    known = {**_OURS, **_tasks}
    if not isinstance(name, str) or name not in known:
        near = [f"did you mean {each}?" for each in nearest(name, known)]
        advice = "; ".join([*near, "your own task is known once its module is imported"])
        raise SettingError.of_value(setting, name, " or ".join(known), advice=advice)
    if name not in _tasks:
        module, _, task = _OURS[name].partition(":")
        _tasks[name] = getattr(import_module(module), task)()
    return _tasks[name]


def task_of_record(record: Record) -> Task[Any]:
    """The task of a run record.

    :raises SettingError: the task is unknown. Names the record.
    """
    with errors_about(record.path):
        return find_task(record.kind, setting="kind")


def dataset_of_record(record: Record) -> str:
    """The dataset on which a run was scored; see `Task.dataset`."""
    return task_of_record(record).dataset(record.config)
