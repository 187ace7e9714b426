"""Standard streams of the command: UTF-8 in every locale, and safe to use if they are closed or full."""

from __future__ import annotations

import io
import os
import sys
from typing import Any

STANDARD_OUTPUT = "standard output"


class _Output(io.FileIO):
    """Writes to standard output, and names it in errors."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise OSError(error.errno, error.strerror, STANDARD_OUTPUT) from None


class _Messages(io.FileIO):
    """Writes to standard error, and ignores errors of writing, so that the work continues."""

    def write(self, data: Any) -> int:
        try:
            written = super().write(data)
        except OSError:
            written = None
        return len(data) if written is None else written


def use_own_streams() -> None:
    """Replaces `sys.stdout` and `sys.stderr`, and opens closed streams, whose numbers the command's files would take.

    Reading a standard input that was closed, or writing to a standard output that was closed, remains an error.
    """
    for descriptor, mode in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, mode), True)  # gets the lowest free number
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - lives as long as the process
    by_line = os.isatty(1) or getattr(sys.stdout, "write_through", False)  # python -u
    sys.stdout = _text(_Output(1, "w", closefd=False), errors="surrogateescape", by_line=by_line)
    sys.stderr = _text(_Messages(2, "w", closefd=False), errors="backslashreplace", by_line=True)


def finish_output() -> None:
    """Flushes `sys.stdout`, or drops its content if that fails: Python would fail a second time at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _text(file: io.FileIO, *, errors: str, by_line: bool) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BufferedWriter(file), encoding="utf-8", errors=errors, line_buffering=by_line)
