"""The interface `Task`: everything that differs between translation, vision, captioning and other tasks.

    recipe -> settings -> train -> score -> record -> tables
                                   export -> registry -> load

`rskip run`, `rskip report`, `rskip zoo` and `rskip.load` don't depend on a task's name: they look it up. Your own task
is a class derived from `Task`; pass an instance to `register_task`. Write a method in the class, or use `imported` with
the module that does the work.
"""

from __future__ import annotations

import warnings
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
    """Results of training and scoring: the task's part of a record.

    :param training: figures of the training beside its sessions and precision; `seconds` among them.
    :param data: what the data was made from.
    """

    metrics: Mapping[str, float]
    signatures: Mapping[str, str]
    curve: list[Mapping[str, Any]]
    training: Mapping[str, Any]
    parameters: int
    data: Mapping[str, Any]


class ModelDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A published model: the parts of its name, what its figures were measured on, and where data and form are from.

    :param architecture: such as transformer_tiny.
    :param connection: the canonical spec.
    :param dataset: in the model's name, such as multi30k.
    :param languages: source and target, of translation.
    :param measured_on: name of the dataset in the entry's figures, such as multi30k-en-de.
    :param split: of it.
    :param data_terms: licence and origin of the data.
    :param paper: of the connection, or of the architecture where the connection is its own.
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
    :cvar programs: that training and scoring start, installed beside Python.
    :cvar probed: whether its training writes what a recipe's `probe` asks for.
    :cvar columns: the metrics that tables show, the main one first.
    :cvar ranked_by: the metric by which settings are chosen, the lower the better; None: the main one, likewise.
    :cvar more_figures: further metrics that a published model's entry has.
    :cvar measures: what papers' figures are called in recipes, and their names; one that is no metric of ours, since
        papers don't name its scorer, stands beside the main metric.
    :cvar precisions: what a loaded model can compute in.
    :cvar model_files: what a published model is built from beside its weights, as shell patterns.
    :cvar published_dtype: what weights are published in.
    :cvar recorded: the type of a run record's config. Holds the keys that rskip reads; a record may have others.
    :cvar removed: dotted keys of settings that earlier versions had; none of them changed a result.
    :cvar example: how to use a loaded model, in Python; `{name}` stands for the model's name.
    """

    name: ClassVar[str]
    programs: ClassVar[tuple[str, ...]] = ()
    probed: ClassVar[bool] = False
    columns: ClassVar[tuple[Column, ...]]
    ranked_by: ClassVar[Column | None] = None
    more_figures: ClassVar[tuple[Column, ...]] = ()
    measures: ClassVar[Mapping[str, str]] = {}
    precisions: ClassVar[tuple[str, ...]] = ("float32",)
    model_files: ClassVar[tuple[str, ...]] = ()
    published_dtype: ClassVar[str] = "float32"
    recorded: ClassVar[Any] = dict[str, Any]
    removed: ClassVar[tuple[str, ...]] = ()
    example: ClassVar[str] = 'import rskip\n\nmodel = rskip.load("{name}")'

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        own = vars(cls)
        if "variant_config" in own:
            cls.row_config = own["variant_config"]
        elif "row_config" in own:
            text = f"{cls.__name__}.row_config is the former name of variant_config: rename the method"
            warnings.warn(text, DeprecationWarning, stacklevel=3)  # the class, behind a frame of ABCMeta
            cls.variant_config = own["row_config"]  # type: ignore[method-assign]

    @property
    @abstractmethod
    def settings(self) -> type[SettingsT]:
        """The type of a recipe's settings."""

    def read_settings(self, content: Mapping[str, Any]) -> SettingsT:
        """:raises SettingError: a key that is unknown, missing or has a wrong value."""
        return convert(content, self.settings)

    def config(self, settings: SettingsT) -> dict[str, Any]:
        """The settings as plain values, from which `read_settings` makes the same again."""
        plain: dict[str, Any] = settings.to_plain() if hasattr(settings, "to_plain") else to_plain(settings)
        return plain

    def variant_config(self, written: Mapping[str, Any]) -> dict[str, Any]:
        """The config for a variant's settings. Doesn't run user code.

        :raises SettingError: as `read_settings` does.
        """
        return self.config(self.read_settings(written))

    row_config = variant_config  # the former name, for older classes that override it

    def dataset(self, config: Mapping[str, Any]) -> str:
        """Name of what a record's config was scored on, under which its table stands."""
        return str(config.get("dataset", self.name))

    def architecture_changes(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """What a record's config changes of the architecture that its model is named by."""
        return {}

    def check(self, settings: SettingsT, *, gpus: int) -> None:  # noqa: B027  (nothing to refuse)
        """Refuses what can be seen to be impossible here, before any work.

        :raises ValueError: settings that don't fit so many GPUs.
        """

    def fairseq_flags(self, settings: SettingsT) -> list[FairseqFlags]:
        """What of the settings are flags of fairseq's programs, which its parser is asked about before any work."""
        return []

    @abstractmethod
    def train(self, run: Run[SettingsT]) -> None:
        """Trains to the end, in the folder that the caller has locked; resumes what an earlier session began.

        :raises CommandFailed: a training failed by itself; TrainingDiverged, where it diverged.
        """

    @abstractmethod
    def diverged(self, run: Run[SettingsT]) -> Outcome:
        """What a training that diverged came to, without metrics."""

    @abstractmethod
    def score(self, run: Run[SettingsT]) -> Outcome:
        """Scores what the training ended with. Work that is done already is not repeated."""

    @abstractmethod
    def scored_file(self, run: Run[SettingsT]) -> Path:
        """The checkpoint that the training ends with, which is scored."""

    def commands(self, run: Run[SettingsT]) -> list[list[str]]:
        """The commands that the run stands for, as words."""
        return []

    def sample_outputs(self, run: Run[SettingsT], count: int) -> str:
        """So many outputs of a run that is done, in several lines; empty where nothing is left to show."""
        return ""

    def artifacts(self, run: Run[SettingsT]) -> dict[str, str]:
        """Files of the run to look at next, and what they are."""
        return {}

    def implied_figures(self, record: Record) -> Mapping[str, float | None]:
        """What the rest of a record says that figures in its metrics are; None for what it doesn't hold."""
        return {}

    def choose(self, records: Sequence[Record]) -> Record:
        """Whose weights are published; never chosen by figures on the test set."""
        return records[0]

    def check_publishable(self, record: Record) -> None:  # noqa: B027  (nothing to refuse)
        """Refuses a run that no published model can describe, before its weights are exported.

        :raises ValueError: it was trained on data of the user's own, for example.
        """

    @abstractmethod
    def export_weights(self, run: Run[SettingsT], record: Record, folder: Path) -> dict[str, Any]:
        """Writes model.safetensors, and what loading it needs, into a folder that is to be published.

        :returns: the main metric of the published weights after reading them back, by its name.
        :raises FileNotFoundError: the run's files are gone.
        :raises ValueError: they are not those of its record.
        """

    @abstractmethod
    def describe(self, folder: Path, record: Record) -> ModelDescription:
        """The model in a published folder.

        :raises ValueError: what the folder holds is no such model, or not the record's.
        """

    @abstractmethod
    def load(self, folder: Path, *, precision: str, device: torch.device) -> Any:
        """The model of a published folder, ready for use."""

    def subject(self, model: ConnectionSpec | Path, *, depth: int | None, conditions: Conditions) -> Subject:
        """The model that `rskip analyse` is to look inside; its examples are not read yet.

        :param model: a connection, of which the task builds its usual model at initialisation, or a trained one's path.
        :param depth: of the model at initialisation; None: the task's usual one.
        :raises OSError, ValueError: no such depth, or the path holds no model of this task; by default any model.
        """
        from rskip.tasks.registry import tasks

        able = " or ".join(name for name, task in tasks().items() if type(task).subject is not Task.subject)
        raise ValueError(f"a model for {self.name} can't be analysed: expected one for {able}")
