"""What every stage needs to know, and how it shows its progress."""

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

    :param options: resolved.
    :param config: the text pipeline that is made.
    :param tokenised: the corpus's text is tokenised already.
    :param work: where the stages leave their files.
    :param workers: processes; their number does not change a byte.
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
        """The files of a split's or a chunk's source and target side."""
        return [folder / f"{name}.{language}" for language in self.languages]

    def processes(self, chunks: int) -> int:
        """How many workers are of use for so many chunks."""
        return max(1, min(self.workers, chunks))


class Sized(Protocol):
    @property
    def size(self) -> int: ...


def progress(stage: str, everything: Sequence[Sized], left: Sequence[Sized]) -> Progress:
    """A stage's progress in pairs, in a log too.

    :param left: what an earlier run has not done.
    """
    total = sum(each.size for each in everything)
    return Progress(stage, total=total, done=total - sum(each.size for each in left), unit=" pairs", log=30.0)
