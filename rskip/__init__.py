"""Residual connections for Transformers and ResNets."""

import sys

__version__ = "0.1.0"

# `--user-dir rskip` imports this package: where fairseq is loaded, its models must be registered.
if "fairseq" in sys.modules and hasattr(sys.modules["fairseq"], "models"):
    import rskip.fairseq_plugin  # noqa: F401
