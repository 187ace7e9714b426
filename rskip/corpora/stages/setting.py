"""Holds the settings of one preparation that all stages share, and runs their jobs in worker processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rskip.corpora.corpus import CleaningOptions
from rskip.corpora.options import PrepareOptions
from rskip.corpora.record import WorkFolder
from rskip.machine.progress import Progress
from rskip.machine.workers import in_order
from rskip.text.pipeline import TextConfig


class Sized(Protocol):
    @property
    def size(self) -> int: ...


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

    def sides(self, folder: str, name: str) -> list[Path]:
        """The files of the source and target side of a split or chunk, in a stage's folder."""
        return [self.work.folder(folder) / f"{name}.{language}" for language in self.languages]

    def processes(self, chunks: int) -> int:
        """The useful number of workers for this number of chunks."""
        return max(1, min(self.workers, chunks))

    def run(
        self,
        stage: str,
        job: Callable[[Any], Any],
        left: Sequence[Sized],
        *,
        everything: Sequence[Sized],
        tasks: Iterable[Any] | None = None,
        per_worker: int = 1,
        take: Callable[[Any], object] = lambda result: None,
    ) -> None:
        """Runs a job for each chunk in worker processes, and shows the progress in pairs, on a terminal or in a log.

        :param left: the chunks that earlier runs have not done.
        :param tasks: the arguments of the job, one per chunk; None: the chunks.
        :param per_worker: number of chunks for which another process is worth its start.
        :param take: called with each result, in the order of the chunks.
        """
        total = sum(each.size for each in everything)
        done = total - sum(each.size for each in left)
        workers = self.processes(len(left) // per_worker)
        with (
            Progress(stage, total=total, done=done, unit=" pairs", log=30.0) as bar,
            closing(in_order(job, left if tasks is None else tasks, workers=workers)) as results,
        ):
            for chunk, result in zip(left, results, strict=True):
                take(result)
                bar.update(chunk.size)
