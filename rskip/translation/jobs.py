"""Assigns inputs to outputs."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rskip.files.resumable import check_unfinished, unfinished_parts
from rskip.files.whole import output_file
from rskip.files.windows import STANDARD_INPUT
from rskip.machine.ranks import Ranks

STANDARD_OUTPUT = "-"


@dataclass(frozen=True)
class Job:
    """Inputs whose translations are written to one output in sequence. None stands for the standard output."""

    inputs: tuple[str, ...]
    output: Path | None

    @property
    def to_file(self) -> bool:
        """Whether the output is a file, which is written atomically, and not a pipe, device or terminal."""
        return self.output is not None and (self.output.is_file() or not self.output.exists())

    @property
    def size(self) -> int | None:
        """The size of all inputs in bytes; None if one is not a file."""
        return known_sum(_file_size(each) for each in self.inputs)


def known_sum(sizes: Iterable[int | None]) -> int | None:
    """The sum of the sizes; None if one is unknown."""
    known = list(sizes)
    return None if None in known else sum(size or 0 for size in known)


def plan_jobs(inputs: Sequence[str], output: str | None) -> list[Job]:
    """One job for all inputs, or if the output is a folder, one job per file with an output of the same name.

    :param inputs: files, or "-" for the standard input.
    :param output: a file; a folder, which exists or whose name ends in "/"; None or "-": the standard output.
    :raises FileNotFoundError: an input is missing.
    :raises ValueError: an input is a folder or would be overwritten, or two inputs have one output.
    """
    for each in inputs:
        if each != STANDARD_INPUT:
            _check_readable(each)
    if output in (None, STANDARD_OUTPUT) or _is_standard_output(output):
        return [Job(tuple(inputs), None)]
    if not (output.endswith("/") or os.path.isdir(output)):
        jobs = [_job(tuple(inputs), Path(output))]
    else:
        if STANDARD_INPUT in inputs:
            raise ValueError(f"the output folder {output} is for files, not for the standard input: give a file")
        jobs = [_job((each,), Path(output, Path(each).name)) for each in inputs]
    _check_outputs(jobs, inputs)
    return jobs


def unfinished_jobs(jobs: Sequence[Job], ranks: Ranks, *, resume: bool) -> tuple[list[Job], list[Path]]:
    """The unfinished jobs, and the complete outputs, which don't change when resuming.

    :raises ValueError: files of an earlier run prevent this one.
    """
    missing, whole = [], []
    for job in jobs:
        if job.to_file:
            assert job.output is not None
            check_unfinished(job.output, ranks.rank, ranks.count, resume=resume)
            if resume and job.output.exists() and not unfinished_parts(job.output):
                whole.append(job.output)
                continue
        missing.append(job)
    return missing, whole


def _job(inputs: tuple[str, ...], output: Path) -> Job:
    """The job that writes `output`, or the file that this link leads to."""
    job = Job(inputs, output)
    return Job(inputs, output_file(output)) if job.to_file else job


def _is_standard_output(path: str) -> bool:
    return os.path.exists(path) and os.path.exists("/dev/stdout") and os.path.samefile(path, "/dev/stdout")


def _check_readable(path: str) -> None:
    if stat.S_ISDIR(os.stat(path).st_mode):
        raise ValueError(f"{path} is a folder: give its files")


def _check_outputs(jobs: Sequence[Job], inputs: Sequence[str]) -> None:
    outputs = [job.output for job in jobs]
    for output in outputs:
        assert output is not None
        if outputs.count(output) > 1:
            raise ValueError(f"several inputs would be written to {output}: give them other names or outputs")
        if not output.is_file():
            continue
        for each in inputs:
            if each != STANDARD_INPUT and os.path.samefile(each, output):
                raise ValueError(f"{output} is an input: choose another output")


def _file_size(path: str) -> int | None:
    found = os.fstat(0) if path == STANDARD_INPUT else os.stat(path)
    return found.st_size if stat.S_ISREG(found.st_mode) else None
