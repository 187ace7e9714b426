"""Tasks: what a recipe can train. Each has a folder of its own, such as rskip/translation, with its `task.py`."""

from rskip.tasks.registry import (
    dataset_of_record,
    find_task,
    register_task,
    task_name,
    task_of_record,
    tasks,
)
from rskip.tasks.task import Column, ModelDescription, Outcome, Task, imported

__all__ = [
    "Column",
    "ModelDescription",
    "Outcome",
    "Task",
    "dataset_of_record",
    "find_task",
    "imported",
    "register_task",
    "task_name",
    "task_of_record",
    "tasks",
]
