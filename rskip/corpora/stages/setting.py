"""Holds the settings of one preparation that all stages share, and shows a stage's progress."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rskip.corpora.corpus import CleaningOptions
from rskip.corpora.options import PrepareOptions
from rskip.corpora.record import WorkFolder
from rskip.machine.progress import Progress
from rskip.text.pipeline import TextConfig


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One preparation.

    :param options: the resolved options.
    :param config: settings of the text pipeline.
    :param tokenised: whether the corpus's text is tokenised already.
    :param work: the folder for the files of the stages.
    :param workers: number of processes; it does not change the result.
    """

    options: PrepareOptions
    config: TextConfig
    tokenised: bool
    work: WorkFolder
    workers: int

    @property
    def languages(self) -> tuple[str, str]:
        return self.config.source_language, self.config.target_language

    @property
    def cleaning(self) -> CleaningOptions:
        return self.options.cleaning

    def sides(self, folder: Path, name: str) -> list[Path]:
        """The files of the source and target side of a split or chunk."""
        return [folder / f"{name}.{language}" for language in self.languages]

    def processes(self, chunks: int) -> int:
        """The useful number of workers for this number of chunks."""
        return max(1, min(self.workers, chunks))


class Sized(Protocol):
    @property
    def size(self) -> int: ...


def progress(stage: str, everything: Sequence[Sized], left: Sequence[Sized]) -> Progress:
    """A stage's progress in pairs, on a terminal or in a log.

    :param left: the part that earlier runs have not done.
    """
    total = sum(each.size for each in everything)
    return Progress(stage, total=total, done=total - sum(each.size for each in left), unit=" pairs", log=30.0)
