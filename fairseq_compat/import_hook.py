"""Runs the mends of a fairseq module around that module's own code."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextlib import ExitStack
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from fairseq_compat.mend import Mend
from fairseq_compat.mends import enabled_mends
from fairseq_compat.startup import FairseqFinder


def mended_spec(fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
    """The spec that the other finders give for `fullname`, its loader changed where a mend names the module.

    None, which leaves the import to the other finders, where no mend does.
    """
    mends = [mend for mend in enabled_mends() if fullname in mend.modules]
    if not mends:
        return None
    for finder in sys.meta_path:
        if finder is FairseqFinder or not hasattr(finder, "find_spec"):
            continue
        spec = finder.find_spec(fullname, path, target)
        if spec is not None:
            if spec.loader is not None:
                run = functools.partial(run_with_mends, spec.loader.exec_module, mends)
                spec.loader.exec_module = run  # type: ignore[method-assign]
            return spec
    return None


def run_with_mends(run: Callable[[ModuleType], None], mends: list[Mend], module: ModuleType) -> None:
    """Runs the module's code within the contexts of its mends, and then what they do after it."""
    with ExitStack() as stack:
        for mend in mends:
            if mend.during:
                stack.enter_context(mend.during())
        run(module)
    for mend in mends:
        if mend.after:
            mend.after(module)
