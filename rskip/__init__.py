"""Residual connections for Transformers and ResNets."""

import importlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rskip import zoo as zoo
    from rskip.zoo.loading import load as load

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    # Imported when asked for: `import rskip` loads nothing else.
    if name == "zoo":
        return importlib.import_module("rskip.zoo")
    if name == "load":
        return importlib.import_module("rskip.zoo.loading").load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), "load", "zoo"} - {"TYPE_CHECKING", "importlib", "sys"})


# `--user-dir PATH/rskip` imports this package, also where fairseq_compat's start-up hook is not installed.
if "fairseq" in sys.modules and hasattr(sys.modules["fairseq"], "models"):
    import rskip.fairseq_plugin  # noqa: F401
