"""`--user-dir NAME` where NAME is an installed package.

fairseq takes --user-dir for a folder only, so a package's name works in the folder above it and nowhere else;
a folder of that name without `__init__.py` (a checkout, say) is imported in the package's place, and
nothing is registered. And where NAME was imported before fairseq, it is not looked at again. Here a bare name
also means an installed package; and if the package has a module `fairseq_plugin`, that module is imported,
which registers its models whenever the package itself was imported. All of it may be repeated.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import importlib.util
import os
import sys
from typing import Any

from fairseq_compat.patch import Patch


def installed_package(name: str) -> str | None:
    """Folder of the installed top-level package `name`, one with an `__init__.py`; None if there is none."""
    if not name.isidentifier():
        return None
    if name in sys.modules:
        file = getattr(sys.modules[name], "__file__", None)
    else:
        spec = importlib.util.find_spec(name)
        file = spec.origin if spec is not None and spec.submodule_search_locations is not None else None
    return os.path.dirname(os.path.abspath(file)) if file else None


def resolve_user_dir(user_dir: str, fairseq_dir: str) -> str:
    """What to import: a package where fairseq looks for one, else an installed one, else what was given."""
    parents = ("", fairseq_dir, os.path.dirname(fairseq_dir))
    if not any(os.path.isfile(os.path.join(parent, user_dir, "__init__.py")) for parent in parents):
        return installed_package(user_dir) or user_dir
    return user_dir


def import_plugin(package: str) -> None:
    """Imports `package`.fairseq_plugin if there is such a module."""
    if importlib.util.find_spec(f"{package}.fairseq_plugin") is not None:
        importlib.import_module(f"{package}.fairseq_plugin")


def find_installed_packages(module: Any) -> None:
    """Wraps `fairseq.utils.import_user_module`."""
    original = module.import_user_module
    fairseq_dir = os.path.dirname(os.path.abspath(str(module.__file__)))

    @functools.wraps(original)
    def import_user_module(args: Any) -> None:
        user_dir = getattr(args, "user_dir", None)
        if user_dir is None:
            return
        folder = resolve_user_dir(user_dir, fairseq_dir)
        original(argparse.Namespace(user_dir=folder))
        import_plugin(os.path.basename(os.path.abspath(folder)))

    module.import_user_module = import_user_module


def active() -> bool:
    from fairseq import utils

    try:
        utils.import_user_module(argparse.Namespace(user_dir="json"))
    except FileNotFoundError:
        return False
    return True


USER_DIR = Patch(
    name="user-dir",
    modules=("fairseq.utils",),
    symptom="--user-dir NAME from another folder or after `import NAME`: FileNotFoundError, unknown --arch",
    after=find_installed_packages,
    active=active,
)
