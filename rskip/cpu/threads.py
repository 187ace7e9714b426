"""The number of threads that the kernels use: PyTorch's if it is loaded, otherwise a number of our own."""

from __future__ import annotations

import os
import sys
from typing import Any

from rskip.machine.cores import available_cores

_own: int | None = None


def threads() -> int:
    """The maximum number of threads of one kernel or step.

    It is `torch.get_num_threads()` if PyTorch is loaded. Otherwise it is the last `set_threads`, or OMP_NUM_THREADS, or
    the number of processors that this process may use.
    """
    torch = _torch()
    if torch is None:
        return _own or _usual()
    if _own is not None:  # PyTorch was loaded after `set_threads`
        set_threads(_own)
    return int(torch.get_num_threads())


def set_threads(count: int) -> None:
    """Sets the number of threads, of PyTorch too if it is loaded."""
    global _own
    torch = _torch()
    if torch is None:
        _own = count
    else:
        _own = None
        torch.set_num_threads(count)


def _torch() -> Any:
    """PyTorch if another module has loaded it completely."""
    torch = sys.modules.get("torch")
    return torch if hasattr(torch, "set_num_threads") else None


def _usual() -> int:
    given = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    if given.isdecimal() and int(given):
        return int(given)
    return available_cores()
