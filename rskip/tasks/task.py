"""The interface `Task`: everything that differs between translation, vision, captioning and other tasks.

    recipe -> settings -> train -> score -> record -> tables
                                   export -> registry -> load

`rskip run`, `rskip report`, `rskip zoo` and `rskip.load` don't depend on a task's name: they look it up. Your own task
is a class derived from `Task`; pass an instance to `register_task`. Write a method in the class, or use `imported` with
the module that does the work.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

import msgspec

from rskip.settings.check import convert, to_plain
from rskip.settings.paper import Paper

if TYPE_CHECKING:
    import torch

    from rskip.connections import ConnectionSpec
    from rskip.records import Record
    from rskip.tasks.fairseq.flags import FairseqFlags
    from rskip.tasks.run import Run
    from rskip.tasks.subject import Conditions, Subject

SettingsT = TypeVar("SettingsT")


class Column(NamedTuple):
    """A metric in tables and model cards: its name in records, and its heading."""

    metric: str
    heading: str


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """Results of training and scoring: the task's part of a run record.

    :param training: values of the training, including `seconds`, in addition to its sessions and precision.
    :param data: description of the data.
    """

    metrics: Mapping[str, float]
    signatures: Mapping[str, str]
    curve: list[Mapping[str, Any]]
    training: Mapping[str, Any]
    parameters: int
    data: Mapping[str, Any]


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


class imported:  # noqa: N801  (used like a function)
    """A method or attribute of a task that is imported from another module on first use.

        class MyTask(Task):
            train = imported("mine.training")
            settings = imported("mine.recipe:MySettings")

    :param where: MODULE, or MODULE:NAME if the attribute has another name there.
    """

    def __init__(self, where: str) -> None:
        self.module, _, self.name = where.partition(":")

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = self.name or name

    def __get__(self, task: object, owner: type) -> Any:
        return self if task is None else getattr(import_module(self.module), self.name)


class Task(ABC, Generic[SettingsT]):
    """A task.

    :cvar name: its name in recipes, records, checkpoints.json and `rskip zoo list --task`.
    :cvar programs: programs that training and scoring start, installed next to Python.
    :cvar probed: whether its training supports a recipe's `probe`.
    :cvar columns: the metrics that tables show, the main one first.
    :cvar ranked_by: the metric by which settings are chosen (lower is better); None: the main metric (lower is better).
    :cvar more_figures: further metrics in the entry of a published model.
    :cvar measures: keys of papers' scores in recipes, with their headings. A score that isn't one of the metrics,
        because papers don't name its scorer, is shown next to the main metric.
    :cvar precisions: number formats in which a loaded model can compute.
    :cvar published_dtype: number format of published weights.
    :cvar reads_checkpoints: whether `load` also reads a checkpoint of fairseq, given its path.
    :cvar example: Python code that uses a loaded model; `example_of` replaces `{name}` by the model's name.
    """

    name: ClassVar[str]
    programs: ClassVar[tuple[str, ...]] = ()
    probed: ClassVar[bool] = False
    columns: ClassVar[tuple[Column, ...]]
    ranked_by: ClassVar[Column | None] = None
    more_figures: ClassVar[tuple[Column, ...]] = ()
    measures: ClassVar[Mapping[str, str]] = {}
    precisions: ClassVar[tuple[str, ...]] = ("float32",)
    published_dtype: ClassVar[str] = "float32"
    reads_checkpoints: ClassVar[bool] = False
    example: ClassVar[str] = 'import rskip\n\nmodel = rskip.load("{name}")'

    def example_of(self, name: str) -> str:
        """Python code that loads and uses the published model of this name."""
        return self.example.format(name=name)

    @property
    @abstractmethod
    def settings(self) -> type[SettingsT]:
        """The type of a recipe's settings."""

    def read_settings(self, content: Mapping[str, Any]) -> SettingsT:
        """:raises SettingError: a key is unknown or missing, or has a wrong value."""
        return convert(content, self.settings)

    def config(self, settings: SettingsT) -> dict[str, Any]:
        """The settings as plain values, from which `read_settings` makes equal settings."""
        plain: dict[str, Any] = settings.to_plain() if hasattr(settings, "to_plain") else to_plain(settings)
        return plain

    def variant_config(self, written: Mapping[str, Any]) -> dict[str, Any]:
        """The config of a variant's settings, made without running user code.

        :raises SettingError: as `read_settings` does.
        """
        return self.config(self.read_settings(written))

    def dataset(self, config: Mapping[str, Any]) -> str:
        """The name of the dataset of a run record's scores, which is the heading of its table."""
        return str(config.get("dataset", self.name))

    def architecture_changes(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The changes in a run record's config to the architecture in the model's name."""
        return {}

    def check(self, settings: SettingsT, *, gpus: int) -> None:  # noqa: B027  (nothing to refuse)
        """Checks, before any work, whether a run is possible on this machine.

        :raises ValueError: the settings don't fit this number of GPUs.
        """

    def check_mirror(self, settings: SettingsT, *, mirror: str) -> None:  # noqa: B027  (nothing to refuse)
        """Checks, before a run's folder is made, whether `--mirror` holds the data.

        :raises SettingError: it does not.
        """

    def fairseq_flags(self, settings: SettingsT) -> list[FairseqFlags]:
        """The flags of fairseq's programs in the settings, which fairseq's parser checks before any work."""
        return []

    @abstractmethod
    def train(self, run: Run[SettingsT]) -> None:
        """Trains to the end, in the folder that the caller has locked. Resumes an earlier session.

        :raises TrainingDiverged: the training diverged.
        :raises CommandFailed: the training failed otherwise.
        """

    @abstractmethod
    def diverged(self, run: Run[SettingsT]) -> Outcome:
        """The outcome of a diverged training, without metrics."""

    @abstractmethod
    def score(self, run: Run[SettingsT]) -> Outcome:
        """Scores the final model of the training. Finished work is not repeated."""

    @abstractmethod
    def scored_file(self, run: Run[SettingsT]) -> Path:
        """The final checkpoint of the training, which is scored."""

    def commands(self, run: Run[SettingsT]) -> list[list[str]]:
        """The equivalent commands of the run, as lists of words."""
        return []

    def sample_outputs(self, run: Run[SettingsT], count: int) -> str:
        """Lines with some outputs of a finished run; empty if its files are missing."""
        return ""

    def artifacts(self, run: Run[SettingsT]) -> dict[str, str]:
        """Files of the run for the user, with their descriptions."""
        return {}

    def implied_figures(self, record: Record) -> Mapping[str, float | None]:
        """Metrics as computed from the rest of a run record; None if they can't be computed."""
        return {}

    def choose(self, records: Sequence[Record]) -> Record:
        """The run whose weights are published, never chosen by scores on the test set."""
        return records[0]

    def check_publishable(self, record: Record) -> None:  # noqa: B027  (nothing to refuse)
        """Checks, before the weights are exported, whether a run can be published.

        :raises ValueError: the run can't be published, for example because it was trained on the user's own data.
        """

    def check_exportable(self, settings: SettingsT) -> None:  # noqa: B027  (nothing to refuse)
        """Checks, before a training whose weights are to be exported, whether that is possible.

        :raises ValueError: it is not, for example because the data have no text pipeline.
        """

    @abstractmethod
    def export_weights(self, run: Run[SettingsT], record: Record, folder: Path) -> dict[str, Any]:
        """Writes model.safetensors, and the files that loading needs, into a folder to publish.

        :returns: the main metric, by name, of the published weights after reading them back.
        :raises FileNotFoundError: files of the run are missing.
        :raises ValueError: files of the run don't match its run record.
        """

    @abstractmethod
    def describe(self, folder: Path, record: Record) -> ModelDescription:
        """Describes the model in a published folder.

        :raises ValueError: the folder doesn't hold such a model, or not that of the run record.
        """

    @abstractmethod
    def load(self, folder: Path, *, precision: str, device: str | torch.device) -> Any:
        """Loads the model of a published folder."""

    def subject(self, model: ConnectionSpec | Path, *, depth: int | None, conditions: Conditions) -> Subject:
        """The model for `rskip analyse`. Its examples are not read yet.

        :param model: a connection, for which the task builds its default model, or the path of a trained model.
        :param depth: depth of the newly initialised model; None: the task's default.
        :raises OSError, ValueError: the depth is not possible, or the path holds no model of this task. By default,
            every model is an error.
        """
        raise ValueError(f"a model for {self.name} can't be analysed: expected one of another task")
