"""Reports a user's mistake in one line and exit status 2, also if fairseq's program runs in several processes.

Once the process group exists, PyTorch's excepthook calls the hook before it and collects what that hook prints. If that
hook raises SystemExit, PyTorch drops the collected text. A process that `torch.multiprocessing.spawn` started never
calls an excepthook: its parent gets the traceback as text. So each rank reports in `distributed_main` itself.
fairseq-hydra-train reports in `_hydra_main`, because hydra catches exceptions and prints its own report.
"""

from __future__ import annotations

from typing import Any

from fairseq_compat.one_line_errors import ended_in_one_line, install
from fairseq_compat.patch import Patch, wraps


def end_in_one_line(module: Any) -> None:
    """Wraps `distributed_main` of fairseq.distributed.utils, or `_hydra_main` of fairseq_cli.hydra_train."""

    @wraps(module, "_hydra_main" if module.__name__ == "fairseq_cli.hydra_train" else "distributed_main")
    def wrapped(original: Any, *args: Any, **kwargs: Any) -> Any:
        with ended_in_one_line():
            return original(*args, **kwargs)


ONE_LINE_ERRORS = Patch(
    name="one-line-errors",
    symptom="a user's mistake that a patch or a plug-in detects: a traceback, or no message from several processes",
    after={
        "fairseq": lambda module: install(),
        "fairseq.distributed.utils": end_in_one_line,
        "fairseq_cli.hydra_train": end_in_one_line,
    },
)
