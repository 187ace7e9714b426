"""Reports a user's mistake in one line and exit status 2, also if fairseq's program runs in several processes.

Once the process group exists, PyTorch's excepthook calls the hook before it and collects what that hook prints. If that
hook raises SystemExit, PyTorch drops the collected text. A process that `torch.multiprocessing.spawn` started never
calls an excepthook: its parent gets the traceback as text. So each rank reports in `distributed_main` itself.
fairseq-hydra-train reports in `_hydra_main`, because hydra catches exceptions and prints its own report.
"""

from __future__ import annotations

import functools
from typing import Any

from fairseq_compat.one_line_errors import ended_in_one_line, install
from fairseq_compat.patch import Patch

_WRAPPED = {"fairseq.distributed.utils": "distributed_main", "fairseq_cli.hydra_train": "_hydra_main"}


def end_in_one_line(module: Any) -> None:
    """Installs the excepthook when `fairseq` is imported, and wraps the functions of _WRAPPED in other modules."""
    name = _WRAPPED.get(module.__name__)
    if name is None:
        install()
        return
    original = getattr(module, name)

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with ended_in_one_line():
            return original(*args, **kwargs)

    setattr(module, name, wrapped)


ONE_LINE_ERRORS = Patch(
    name="one-line-errors",
    modules=("fairseq", *_WRAPPED),
    symptom="a user's mistake that a patch or a plug-in detects: a traceback, or no message from several processes",
    after=end_in_one_line,
)
