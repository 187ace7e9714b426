"""Ends a diverged training in one line, and gives the rank that failed first time to report its error."""

from __future__ import annotations

import time

from fairseq_compat.one_line_errors import Ending
from rskip.machine.torch_errors import lost_rank
from rskip.tasks.process import DIVERGED

_REPORTING_SECONDS = 1.0  # torchrun and torch.multiprocessing end all processes as soon as one ends


def diverged(error: BaseException) -> Ending | None:
    """The ending of a training that fairseq's trainer or loss scaler stopped."""
    if not isinstance(error, FloatingPointError):
        return None
    return f"the training diverged: {' '.join(str(error).split())}", DIVERGED


def lost(error: BaseException) -> None:
    """Delays the traceback of a rank that lost its connection, so that the rank that failed first reports first."""
    if isinstance(error, RuntimeError) and lost_rank(error):
        time.sleep(_REPORTING_SECONDS)
