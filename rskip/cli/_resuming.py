"""Tells how to go on when a command stops whose finished work is kept."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

from rskip.cli.main import TERMINATED, line_start, one_line, termination_raises
from rskip.files.resumable import StoppedError, how_to_resume


@contextmanager
def stopping_tells(command: str, outputs: Sequence[Path], kept: str, *, alone: bool = True) -> Iterator[None]:
    """Within the block, an error, an interrupt or SIGTERM after finished work says where it is and how to resume.

    :param kept: the finished work, with {} for the number of lines, such as "lines up to {} are".
    :param alone: whether the process waits for no other one. Otherwise SIGTERM ends it at once.
    """
    with termination_raises("") if alone else nullcontext():
        try:
            yield
        except StoppedError as stopped:
            hint = f"{kept.format(f'{stopped.lines:,}')} in {stopped.path}: --resume continues from there"
            if isinstance(stopped.cause, Exception):
                raise ValueError(f"{one_line(stopped.cause)}; {hint}") from stopped
            print(f"{line_start()}{command}: {hint}", file=sys.stderr)
            raise stopped.cause from None
        except SystemExit as exit:
            if exit.code == TERMINATED and (hint := how_to_resume(outputs)):
                print(f"{command}: {hint}", file=sys.stderr)
            raise
