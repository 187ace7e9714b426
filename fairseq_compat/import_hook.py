"""Runs the patches of a fairseq module around that module's own code."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextlib import ExitStack
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from fairseq_compat.patch import Patch
from fairseq_compat.registry import enabled_patches
from fairseq_compat.startup import FairseqFinder


def patched_spec(fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
    """The other finders' spec for `fullname`, with a changed loader if a patch names the module.

    If no patch does, it returns None, which leaves the import to the other finders.
    """
    patches = [patch for patch in enabled_patches() if fullname in patch.modules]
    if not patches:
        return None
    for finder in sys.meta_path:
        if finder is FairseqFinder or not hasattr(finder, "find_spec"):
            continue
        spec = finder.find_spec(fullname, path, target)
        if spec is not None:
            if spec.loader is not None:
                run = functools.partial(run_with_patches, spec.loader.exec_module, patches)
                spec.loader.exec_module = run  # type: ignore[method-assign]
            return spec
    return None


def run_with_patches(run: Callable[[ModuleType], None], patches: list[Patch], module: ModuleType) -> None:
    """Runs the module's code within the contexts of its patches, and then the patches' `after` functions."""
    with ExitStack() as stack:
        for patch in patches:
            if patch.during:
                stack.enter_context(patch.during())
        run(module)
    for patch in patches:
        if patch.after:
            patch.after(module)
