"""Residual connections for Transformers and ResNets."""

import importlib
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rskip import nn as nn
    from rskip import zoo as zoo
    from rskip.comparison.compare import compare as compare
    from rskip.nn import adapt as adapt
    from rskip.zoo.loading import load as load

__version__ = "0.1.0"

forked = False  # whether this process is a fork of one with PyTorch, whose OpenMP threads it has not


def _note_fork() -> None:
    global forked
    forked = "torch" in sys.modules


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)


def __getattr__(name: str) -> object:
    # Imported when asked for: `import rskip` loads nothing else.
    if name in ("nn", "zoo"):
        return importlib.import_module(f"rskip.{name}")
    if name == "adapt":
        return importlib.import_module("rskip.nn").adapt
    if name == "compare":
        return importlib.import_module("rskip.comparison.compare").compare
    if name == "load":
        return importlib.import_module("rskip.zoo.loading").load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), "adapt", "compare", "load", "nn", "zoo"} - {"TYPE_CHECKING", "importlib", "os", "sys"})


# `--user-dir PATH/rskip` imports this package, also where fairseq_compat's start-up hook is not installed.
if "fairseq" in sys.modules and hasattr(sys.modules["fairseq"], "models"):
    import rskip.fairseq_plugin  # noqa: F401
