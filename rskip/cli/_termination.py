"""Ending a command's child processes when the command is terminated."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

TERMINATED = 128 + signal.SIGTERM


@contextmanager
def termination_raises() -> Iterator[None]:
    """Within the block SIGTERM raises SystemExit (status 143), so that what is under way is cleaned up, and says so."""
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(TERMINATED))
    try:
        yield
    except SystemExit as exit:
        if exit.code == TERMINATED:
            print("rskip: terminated; the same command goes on where it stopped", file=sys.stderr)
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
