"""`np.int` and `np.float`, which NumPy 1.24 removed.

Two modules of fairseq, both off the translation path, still use them. Each gets its own view of NumPy in
which they mean what they meant, `int` and `float`; NumPy itself stays as it is.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

from fairseq_compat.patch import Patch

MODULES = ("fairseq.data.data_utils", "fairseq.modules.dynamic_crf_layer")


def give_aliases(module: Any) -> None:
    """Replaces the module's `np` by a copy of NumPy's namespace that has the aliases too."""
    view = ModuleType("numpy", "NumPy, with int and float as names of the built-in types.")
    vars(view).update(vars(module.np))
    vars(view).update(int=int, float=float)
    module.np = view


def active() -> bool:
    views = [importlib.import_module(name).np for name in MODULES]
    return all(getattr(np, "int", None) is int and getattr(np, "float", None) is float for np in views)


NUMPY_ALIASES = Patch(
    name="numpy-aliases",
    modules=MODULES,
    symptom="AttributeError: module 'numpy' has no attribute 'int' (or 'float')",
    after=give_aliases,
    active=active,
)
