"""Tasks: the kinds of training that a recipe can name, such as translation and vision.

    recipe -> settings -> train -> score -> record -> tables
                                   export -> registry -> load

`rskip run`, `rskip report`, `rskip zoo` and `rskip.load` don't depend on a task's name: they look it up. A `Task` says
what tables and model cards need, and loads models. Its `Work`, which may import PyTorch, has the settings, trains and
scores. CONTRIBUTING.md shows a task of your own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import msgspec

from rskip.settings.check import convert, to_plain
from rskip.settings.errors import SettingError, errors_about, nearest
from rskip.settings.paper import Paper

if TYPE_CHECKING:

    from rskip.records import Record
    from rskip.tasks.run import Run
    from rskip.tasks.subject import Subject

SettingsT = TypeVar("SettingsT")
_OURS = ("translation", "vision", "captioning", "language_modeling")  # rskip/NAME/task.py
_tasks: dict[str, Task[Any]] = {}


class Column(NamedTuple):
    """A metric: its name in records, and its heading. `shown`: in tables of runs, not only in model cards."""

    metric: str
    heading: str
    shown: bool = True


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """Results of training and scoring: the task's part of a run record.

    :param training: values of the training, including `seconds`, in addition to its sessions and precision.
    :param data: description of the data.
    """

    metrics: Mapping[str, float]
    signatures: Mapping[str, str] = {}
    curve: list[Mapping[str, Any]] = []
    training: Mapping[str, Any]
    parameters: int
    data: Mapping[str, Any] = {}


class ModelDescription(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a published model: the parts of its name, the dataset of its scores, and its sources.

    :param architecture: the architecture, such as transformer_tiny.
    :param connection: the canonical spec.
    :param dataset: the dataset in the model's name, such as multi30k.
    :param languages: source and target language, for translation.
    :param measured_on: the dataset of its scores, such as multi30k-en-de.
    :param split: the split of that dataset.
    :param data_terms: licence and origin of the data.
    :param paper: the paper of the connection, or of the architecture if the connection is the original one.
    """

    architecture: str
    connection: str
    dataset: str
    languages: tuple[str, str] | None = None
    measured_on: str
    split: str
    data_terms: str
    paper: Paper


def _example(name: str) -> str:
    """Python code that loads a published model."""
    return f'import rskip\n\nmodel = rskip.load("{name}")'


def _unpublished(*_: Any) -> Any:
    raise ValueError("models of this task can't be published: its `Work` lacks export_weights and describe")


def _unexamined(*_: Any, **__: Any) -> Any:
    raise ValueError("a model of this task can't be analysed: expected one of another task")


@dataclass(frozen=True, kw_only=True)
class Work(Generic[SettingsT]):
    """What a task does. Only the first three are required; `run` is always a `rskip.tasks.run.Run`.

    :param settings: the type of a recipe's settings.
    :param train: `train(run)` trains to the end, in the folder that the caller has locked, or resumes an earlier
        session. It raises `TrainingDiverged`, or `CommandFailed` if the training failed otherwise.
    :param score: `score(run)` scores the final model. Finished work is not repeated. After a diverged training, whose
        final model is missing, the outcome has no metrics.
    :param scored_file: the final model of a run.
    :param required: settings that a recipe must name although they have a default, such as `train.connection`.
    :param config: the config of written settings, if it is not that of the settings that they make.
    :param check: checks, before any work, whether runs are possible on this machine. It raises `ValueError`.
    :param commands: the equivalent commands of a run, as lists of words.
    :param sample_outputs: lines with so many outputs of a finished run; empty if its files are missing.
    :param artifacts: files of a run for the user, with their descriptions.
    :param choose: the run whose weights are published, never chosen by scores on the test set.
    :param check_publishable: raises `ValueError` if the run of a record can't be published, for example because it was
        trained on the user's own data.
    :param architecture_changes: the changes in a run record's config to the architecture in the model's name.
    :param export_weights: `export_weights(run, record, folder)` writes model.safetensors, and the files that loading
        needs. It returns the main metric, by name, of the weights after reading them back.
    :param describe: `describe(folder, record)` describes the model in a published folder.
    :param subject: `subject(model, depth=, conditions=)` is the model for `rskip analyse`: of a connection, at its
        initialisation with this depth (None: the default), or of the path of a trained model. It raises `OSError` or
        `ValueError` if the path holds no model of this task.
    """

    settings: type[SettingsT]
    train: Callable[[Run[SettingsT]], None]
    score: Callable[[Run[SettingsT]], Outcome]
    scored_file: Callable[[Run[SettingsT]], Path] = lambda run: run.folder.path / "model.safetensors"
    required: Sequence[str] = ()
    config: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None
    check: Callable[[Sequence[Run[SettingsT]]], None] = lambda runs: None
    commands: Callable[[Run[SettingsT]], list[list[str]]] = lambda run: []
    sample_outputs: Callable[[Run[SettingsT], int], str] = lambda run, count: ""
    artifacts: Callable[[Run[SettingsT]], dict[str, str]] = lambda run: {}
    choose: Callable[[Sequence[Record]], Record] = lambda records: records[0]
    check_publishable: Callable[[Record], None] = lambda record: None
    architecture_changes: Callable[[Mapping[str, Any]], dict[str, Any]] = lambda config: {}
    export_weights: Callable[[Run[SettingsT], Record, Path], dict[str, Any]] = _unpublished
    describe: Callable[[Path, Record], ModelDescription] = _unpublished
    subject: Callable[..., Subject] = _unexamined


@dataclass(frozen=True, kw_only=True)
class Task(Generic[SettingsT]):
    """A task, as tables, recipes and model cards see it.

    :param name: its name in recipes, records, checkpoints.json and `rskip zoo list --task`.
    :param columns: its metrics, the main one first.
    :param load: `load(folder, precision=, device=)` loads the model of a published folder.
    :param work: makes its `Work`. It is called on first use, and may import PyTorch.
    :param dataset: the name of the dataset of a run record's scores, which is the heading of its table, from the
        record's config; None: its setting `dataset`, or the task's name.
    :param ranked_by: the metric by which settings are chosen; None: the main one. Lower is better in both cases.
    :param measures: keys of papers' scores in recipes, with their headings (default: the metrics). A score that isn't
        one of the metrics, because papers don't name its scorer, is shown next to the main metric.
    :param precisions: number formats in which a loaded model can compute.
    :param probed: whether its training supports a recipe's `probe`.
    :param reads_checkpoints: whether `load` also reads a checkpoint of fairseq, given its path.
    :param example: Python code that uses the published model `name`.
    :param use: what its published models are for and not for, for their cards; `{dataset}` is a model's dataset.
    """

    name: str
    columns: tuple[Column, ...]
    load: Callable[..., Any]
    work: Callable[[], Work[SettingsT]]
    dataset: Callable[[Mapping[str, Any]], str] | None = None
    ranked_by: Column | None = None
    measures: Mapping[str, str] = field(default_factory=dict)
    precisions: tuple[str, ...] = ("float32",)
    probed: bool = False
    reads_checkpoints: bool = False
    example: Callable[..., str] = _example
    use: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "measures", self.measures or self.headings)

    @property
    def headings(self) -> dict[str, str]:
        """The heading of each metric."""
        return {column.metric: column.heading for column in self.columns}

    @property
    def shown(self) -> tuple[Column, ...]:
        """The columns in tables of runs."""
        return tuple(column for column in self.columns if column.shown)

    def read_settings(self, content: Mapping[str, Any]) -> SettingsT:
        """:raises SettingError: a key is unknown or missing, or has a wrong value."""
        work = self.work()
        settings = convert(content, work.settings)
        for name in work.required:
            section, _, key = name.partition(".")
            if key not in content[section]:
                raise SettingError(name, "is missing")
        return settings

    def config(self, written: Mapping[str, Any]) -> dict[str, Any]:
        """The settings as plain values, from which `read_settings` makes equal settings.

        :raises SettingError: as `read_settings`.
        """
        if (config := self.work().config) is not None:
            return config(written)
        settings: Any = self.read_settings(written)
        return settings.to_plain() if hasattr(settings, "to_plain") else to_plain(settings)


def register_task(task: Task[Any]) -> None:
    """Registers a task under its name."""
    _tasks[task.name] = task


def tasks() -> dict[str, Task[Any]]:
    """The tasks by their names: those of rskip, and those that users registered."""
    return {name: find_task(name) for name in dict.fromkeys((*_OURS, *_tasks))}


def find_task(name: object, *, setting: str = "task") -> Task[Any]:
    """The task of that name.

    :param setting: the setting that holds the name, for errors.
    :raises SettingError: the name is unknown.
    """
    known = list(dict.fromkeys((*_OURS, *_tasks)))
    if not isinstance(name, str) or name not in known:
        near = [f"did you mean {each}?" for each in nearest(name, known)]
        advice = "; ".join([*near, "your own task is known once its module is imported"])
        raise SettingError.of_value(setting, name, " or ".join(known), advice=advice)
    if name not in _tasks:
        register_task(import_module(f"rskip.{name}.task").TASK)
    return _tasks[name]


def task_of_record(record: Record) -> Task[Any]:
    """The task of a run record.

    :raises SettingError: the task is unknown. Names the record.
    """
    with errors_about(record.path):
        return find_task(record.kind, setting="kind")


def dataset_of_record(record: Record) -> str:
    """The dataset on which a run was scored; see `Task.dataset`."""
    task = task_of_record(record)
    return task.dataset(record.config) if task.dataset else str(record.config.get("dataset", task.name))
