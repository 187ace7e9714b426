"""The patches of this process, of fairseq_compat and of plug-ins, and how they run around fairseq's modules."""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from fairseq_compat.patch import Patch
from fairseq_compat.patches import PATCHES

REGISTRY: list[Patch] = [*PATCHES]
_applied: set[tuple[str, str]] = set()  # names of patches and modules


def enabled_patches() -> list[Patch]:
    """The patches that FAIRSEQ_COMPAT_DISABLE doesn't name."""
    disabled = {name.strip() for name in os.environ.get("FAIRSEQ_COMPAT_DISABLE", "").split(",")}
    return [patch for patch in REGISTRY if not disabled & {patch.name, "all"}]


def add_patches(patches: Iterable[Patch]) -> None:
    """Adds a plug-in's patches, each only once. Modules that are already imported are patched immediately.

    A patch has a name of its own and no `during`.
    """
    for patch in patches:
        if patch in REGISTRY:
            continue
        assert not patch.during and patch.name not in [other.name for other in REGISTRY]
        REGISTRY.append(patch)
        if patch in enabled_patches():
            for name in filter(sys.modules.__contains__, patch.modules):
                _apply(patch, sys.modules[name])


def is_active(patch: Patch) -> bool:
    """Whether the patch changes its modules in this process. Imports them."""
    for name in patch.modules:
        importlib.import_module(name)
    return {(patch.name, name) for name in patch.modules} <= _applied


def patched_spec(own: type, fullname: str, path: Any, target: Any) -> ModuleSpec | None:
    """The other finders' spec for `fullname`, with a changed loader if a patch names the module.

    If no patch does, it returns None, which leaves the import to the other finders.

    :param own: the finder that asks.
    """
    patches = [patch for patch in enabled_patches() if fullname in patch.modules]
    if not patches:
        return None
    for finder in sys.meta_path:
        if finder is own or not hasattr(finder, "find_spec"):
            continue
        spec = finder.find_spec(fullname, path, target)
        if spec is not None:
            if spec.loader is not None:
                run = functools.partial(_run, spec.loader.exec_module, patches)
                spec.loader.exec_module = run  # type: ignore[method-assign]
            return spec
    return None


def _run(run: Callable[[ModuleType], None], patches: list[Patch], module: ModuleType) -> None:
    """Runs the module's code within the contexts of its patches, and then the patches' `after` functions."""
    with ExitStack() as stack:
        for patch in patches:
            if module.__name__ in patch.during:
                stack.enter_context(patch.during[module.__name__]())
        run(module)
    for patch in patches:
        _apply(patch, module)


def _apply(patch: Patch, module: ModuleType) -> None:
    if module.__name__ in patch.after:
        patch.after[module.__name__](module)
    _applied.add((patch.name, module.__name__))
