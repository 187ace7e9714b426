"""Restores names that NumPy removed: `np.int`, `np.float`, `np.compat.long`, `np.percentile(interpolation=...)`.

Four modules of fairseq still use them: masking, bucketed batches, language models and the dynamic CRF. Each gets its
own view of NumPy with the old names. NumPy itself does not change.
"""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

from fairseq_compat.patch import Patch

MODULES = (
    "fairseq.data.data_utils",
    "fairseq.data.language_pair_dataset",
    "fairseq.data.token_block_dataset",
    "fairseq.modules.dynamic_crf_layer",
)


def percentile(*args: Any, interpolation: str = "linear", **options: Any) -> Any:
    """`numpy.percentile` with the argument `interpolation`, which became `method` in NumPy 1.22."""
    import numpy

    return numpy.percentile(*args, **{"method": interpolation, **options})


def give_aliases(module: Any) -> None:
    """Replaces the module's `np` by a copy of NumPy's namespace with the removed names."""
    view = ModuleType("numpy", "NumPy, with the names that fairseq 0.12.2 uses.")
    vars(view).update(vars(module.np))
    vars(view).update(int=int, float=float, compat=SimpleNamespace(long=int), percentile=percentile)
    module.np = view


NUMPY_ALIASES = Patch(
    name="numpy-aliases",
    symptom="language models, --num-batch-buckets, masking: AttributeError or TypeError about names of NumPy's",
    after=dict.fromkeys(MODULES, give_aliases),
)
