"""A training that diverged ends in one line too; a rank that lost another one leaves that one time to report."""

from __future__ import annotations

import time

from fairseq_compat.one_line_errors import ENDINGS, STATUSES, Ending, UsageError
from rskip.machine.torch_errors import lost_rank
from rskip.tasks.process import DIVERGED

__all__ = ["UsageError", "install"]

_REPORTING_SECONDS = 1.0  # torchrun and torch.multiprocessing end all processes when one has ended


def diverged(error: BaseException) -> Ending | None:
    """The ending of a training that fairseq's trainer or loss scaler stopped."""
    if not isinstance(error, FloatingPointError):
        return None
    return f"the training diverged: {' '.join(str(error).split())}", DIVERGED


def lost(error: BaseException) -> None:
    """Has a rank that lost another one wait with its own traceback: the one that stopped first reports first."""
    if isinstance(error, RuntimeError) and lost_rank(error):
        time.sleep(_REPORTING_SECONDS)


def install() -> None:
    """Adds both to what fairseq's programs ask when they end, once."""
    ENDINGS.extend(find for find in (diverged, lost) if find not in ENDINGS)
    STATUSES.add(DIVERGED)
