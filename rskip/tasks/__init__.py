"""Tasks: the kinds of training that a recipe can name. Each is a folder with a `task.py`, such as rskip/vision."""

from rskip.tasks.task import (
    Column,
    ModelDescription,
    Outcome,
    Task,
    Work,
    dataset_of_record,
    find_task,
    register_task,
    task_of_record,
    tasks,
)

__all__ = [
    "Column",
    "ModelDescription",
    "Outcome",
    "Task",
    "Work",
    "dataset_of_record",
    "find_task",
    "register_task",
    "task_of_record",
    "tasks",
]
