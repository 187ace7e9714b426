"""The patches of this process: fairseq_compat's own, and those of plug-ins."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

from fairseq_compat import startup
from fairseq_compat.patch import Patch
from fairseq_compat.patches import PATCHES

REGISTRY: list[Patch] = [*PATCHES]


def enabled_patches() -> list[Patch]:
    """The patches that FAIRSEQ_COMPAT_DISABLE doesn't name."""
    disabled = {name.strip() for name in os.environ.get("FAIRSEQ_COMPAT_DISABLE", "").split(",")}
    return [patch for patch in REGISTRY if not disabled & {patch.name, "all"}]


def add_patches(patches: Iterable[Patch]) -> None:
    """Adds a plug-in's patches, each only once. Modules that are already imported are patched immediately.

    :raises ValueError: the name is taken by another patch, or a patch has `during`.
    """
    startup.register()
    for patch in patches:
        if patch in REGISTRY:
            continue
        if patch.during is not None or any(patch.name == other.name for other in REGISTRY):
            raise ValueError(f"patch {patch.name}: expected a new name and no `during`")
        REGISTRY.append(patch)
        if patch.after is not None and patch in enabled_patches():
            for name in filter(sys.modules.__contains__, patch.modules):
                patch.after(sys.modules[name])
