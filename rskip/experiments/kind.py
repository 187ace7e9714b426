"""What one kind of recipe is to `rskip run`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Generic

from rskip.experiments.recipe import Recipe, SettingsT
from rskip.experiments.record import Record
from rskip.experiments.run_folder import RunFolder


class Kind(ABC, Generic[SettingsT]):
    """How recipes of one kind are run, what is printed of their runs, and what is published."""

    programs: tuple[str, ...]  # that training and scoring start, installed beside Python

    @abstractmethod
    def check(self, recipe: Recipe[SettingsT], *, gpus: int) -> None:
        """Raises ValueError or FileNotFoundError for what can be seen, before any work, to be impossible here."""

    @abstractmethod
    def train_and_score(
        self, recipe: Recipe[SettingsT], *, seed: int, folder: RunFolder, mirror: str | None, gpus: int, lock: int
    ) -> Record:
        """Does what of a run is not done yet, in the folder that the caller has locked and bound.

        :param mirror: where the dataset is, else its public source.
        :param gpus: how many train it, 0 for the CPU.
        :param lock: descriptor of the folder's lock, for the training to inherit.
        :raises CommandFailed: a training failed by itself.
        """

    @abstractmethod
    def commands(
        self, recipe: Recipe[SettingsT], *, seeds: Sequence[int], mirror: str | None, gpus: int
    ) -> list[list[str]]:
        """The commands that the runs stand for, as words."""

    @abstractmethod
    def examples(self, recipe: Recipe[SettingsT], *, folder: RunFolder) -> str:
        """What the recipe's `show` prints of a run that is done; empty where there is nothing left to print."""

    @abstractmethod
    def places(self, record: Record) -> dict[str, str]:
        """Files of the run to look at next, and what they are."""

    @abstractmethod
    def to_publish(self, records: Sequence[Record]) -> Record:
        """Which of a recipe's runs is published; never chosen by its figures on the test set."""

    @abstractmethod
    def fill(self, folder: Path, recipe: Recipe[SettingsT], *, seed: int, mirror: str | None) -> Record:
        """Writes a finished run's weights, and what loading them needs, into a folder that is to be published.

        :returns: the run's record with `published` filled in.
        :raises FileNotFoundError: the run's files are gone.
        :raises ValueError: they are not those of its record, take too many bytes, or do worse when read back.
        """
