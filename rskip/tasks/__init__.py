"""Tasks: translation, image classification, captioning, and one's own. No task imports PyTorch before it works."""

from rskip.tasks.captioning import Captioning
from rskip.tasks.image_classification import ImageClassification
from rskip.tasks.task import (
    Column,
    ModelDescription,
    Outcome,
    Task,
    dataset_of_record,
    find_task,
    register_task,
    task_of_kind,
    task_of_record,
    tasks,
)
from rskip.tasks.translation import Translation

register_task(Translation())
register_task(ImageClassification())
register_task(Captioning())

__all__ = [
    "Column",
    "ModelDescription",
    "Outcome",
    "Task",
    "dataset_of_record",
    "find_task",
    "register_task",
    "task_of_kind",
    "task_of_record",
    "tasks",
]
