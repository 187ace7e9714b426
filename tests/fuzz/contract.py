"""The contract for any input of rskip, which all fuzz tests check.

Python raises ValueError, TypeError or OSError (FileNotFoundError among them), on purpose, with one line. A command ends
with status 0, 1 or 2; in the last two with one line on stderr. Both within seconds. Nothing else comes out.
"""

from __future__ import annotations

import contextlib
import io
import linecache
import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import rskip
from rskip.cli.main import main

SECONDS = 10
SOURCES = str(Path(rskip.__file__).parent)


class Hang(BaseException):
    """It took longer than SECONDS."""


@contextlib.contextmanager
def within_seconds() -> Iterator[None]:
    def raise_hang(*_: object) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, raise_hang)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def holds(call: Callable[..., Any], *args: Any, **settings: Any) -> Any:
    """What the call gives, or the error that it raises, which is checked."""
    try:
        with within_seconds():
            return call(*args, **settings)
    except OSError as error:
        assert len(str(error).splitlines()) == 1, repr(error)
        return error
    except (ValueError, TypeError) as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        line = linecache.getline(place.filename, place.lineno or 0)
        on_purpose = place.filename.startswith(SOURCES) and "raise " in line
        assert on_purpose, f"{type(error).__name__} from {place.filename}:{place.lineno}, {line.strip()!r}: {error}"
        assert len(str(error).splitlines()) == 1, repr(error)
        return error


def command(argv: Sequence[str], *, text: str = "") -> tuple[int, str]:
    """Runs `rskip ARGV...` in this process: its status, and what it printed on stdout."""
    output, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors), within_seconds():
        try:
            status = main(list(argv))
        except SystemExit as stop:
            assert isinstance(stop.code, int), stop.code
            status = stop.code
    said = errors.getvalue()
    assert status in (0, 1, 2), (status, said)
    if status:
        assert said.count("\n") == 1 and ": error: " in said, said
    return status, output.getvalue()
