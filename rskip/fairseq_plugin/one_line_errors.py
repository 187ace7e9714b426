"""Users' mistakes in fairseq's programs end in one line and status 2, not in a traceback; divergence in DIVERGED."""

from __future__ import annotations

import sys
from pathlib import Path
from types import TracebackType

from rskip.tasks.process import DIVERGED


class UsageError(ValueError):
    """A mistake of the user's: what was given, what was expected, what to do."""


def usage_error_behind(error: BaseException | None) -> UsageError | None:
    """The `UsageError` that `error` is or was raised from or during, or None."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, UsageError):
            return error
        seen.add(id(error))
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return None


def install() -> None:
    """Where the running program is one of fairseq's, prints as one line a `UsageError`, and that a training diverged.

    Other errors are untouched.
    """
    program = Path(sys.argv[0]).name if sys.argv else ""
    previous = sys.excepthook
    if not program.startswith("fairseq-") or getattr(previous, "prints_usage_errors", False):
        return

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        usage_error = usage_error_behind(error)
        if usage_error is None and isinstance(error, FloatingPointError):  # of fairseq's trainer and loss scaler
            print(f"{program}: error: the training diverged: {' '.join(str(error).split())}", file=sys.stderr)
            raise SystemExit(DIVERGED)
        if usage_error is None:
            previous(kind, error, trace)
            return
        print(f"{program}: error: {usage_error}", file=sys.stderr)
        raise SystemExit(2)

    hook.prints_usage_errors = True  # type: ignore[attr-defined]
    sys.excepthook = hook
