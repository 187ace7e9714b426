"""Tells how to go on when a command stops whose finished work is kept."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rskip.cli.main import line_start, one_line
from rskip.files.resumable import StoppedError


@contextmanager
def stopping_tells(command: str, kept: str) -> Iterator[None]:
    """Within the block, an error or interrupt after finished work says where the work is and how to resume.

    :param kept: the finished work, with {} for the number of lines, such as "lines up to {} are".
    """
    try:
        yield
    except StoppedError as stopped:
        hint = f"{kept.format(f'{stopped.lines:,}')} in {stopped.path}: --resume continues from there"
        if isinstance(stopped.cause, Exception):
            raise ValueError(f"{one_line(stopped.cause)}; {hint}") from stopped
        print(f"{line_start()}{command}: {hint}", file=sys.stderr)
        raise stopped.cause from None
