"""Allows loading fairseq's checkpoints with `weights_only` on.

Since PyTorch 2.6, torch.load refuses classes that are not allowed. fairseq's checkpoints contain an argparse.Namespace
(the model's arguments), and NumPy scalars and arrays if metrics were tracked. Those of fairseq 0.5 to 0.9 contain
meters. This patch allows these plain data types; `weights_only` itself stays on.
"""

from __future__ import annotations

import argparse
from typing import Any

from fairseq_compat.patch import Patch


def plain_data_types() -> list[Any]:
    """argparse.Namespace, and everything with which NumPy pickles arrays and scalars of plain numbers and strings.

    In a pair of a function and a name, the name is the one under which NumPy 1 or 2 pickled the function.
    """
    import numpy
    import numpy.dtypes

    core = numpy._core if hasattr(numpy, "_core") else numpy.core
    functions = (core.multiarray.scalar, core.multiarray._reconstruct)
    kinds = (getattr(numpy.dtypes, name) for name in numpy.dtypes.__all__)
    return [
        argparse.Namespace,
        numpy.ndarray,
        numpy.dtype,
        *(kind for kind in kinds if kind is not numpy.dtypes.ObjectDType),
        *((function, f"numpy.core.multiarray.{function.__name__}") for function in functions),
        *((function, f"numpy._core.multiarray.{function.__name__}") for function in functions),
    ]


def allow_plain_data_types(module: Any) -> None:
    """Adds these classes to PyTorch's allow-list."""
    import torch
    from fairseq.logging import meters

    kinds = (meters.AverageMeter, meters.StopwatchMeter, meters.TimeMeter)
    old_meters = [(kind, f"fairseq.meters.{kind.__name__}") for kind in kinds]
    torch.serialization.add_safe_globals([*plain_data_types(), *old_meters])


SAFE_GLOBALS = Patch(
    name="safe-globals",
    symptom="Weights only load failed (argparse.Namespace, NumPy scalars): generate, resume, hub, averaging",
    after={"fairseq": allow_plain_data_types},
)
