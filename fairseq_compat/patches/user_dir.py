"""Lets `--user-dir NAME` name an installed package.

fairseq accepts only a folder, so a package's name works only in the package's parent folder. If a folder of that name
has no `__init__.py` (such as a checkout), fairseq imports it instead of the package and registers nothing. If NAME was
imported before fairseq, fairseq skips it. With this patch a bare name also means an installed package. If the package
has a module `fairseq_plugin`, that module is imported too and registers its models, even if the package was imported
earlier. It is safe to do this repeatedly. A NAME that is neither gives an error of one line.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import sys
from typing import Any

from fairseq_compat.one_line_errors import UsageError
from fairseq_compat.patch import Patch, wraps


def installed_package(name: str) -> str | None:
    """Folder of the installed top-level package `name` with an `__init__.py`, or None."""
    if not name.isidentifier():
        return None
    if name in sys.modules:
        file = getattr(sys.modules[name], "__file__", None)
    else:
        spec = importlib.util.find_spec(name)
        file = spec.origin if spec is not None and spec.submodule_search_locations is not None else None
    return os.path.dirname(os.path.abspath(file)) if file else None


def resolve_user_dir(user_dir: str, fairseq_dir: str) -> str:
    """The path to import: a package where fairseq looks first, else an installed package, else a folder.

    A package that lies beside fairseq, where fairseq looks last, is an installed one. By fairseq's path to it, through
    fairseq's own folder, it would be refused if it was imported already.

    :raises UsageError: there is none of them.
    """
    places = [os.path.join(parent, user_dir) for parent in ("", fairseq_dir, os.path.dirname(fairseq_dir))]
    if any(os.path.isfile(os.path.join(place, "__init__.py")) for place in places[:2]):
        return user_dir
    if (package := installed_package(user_dir)) is not None:
        return package
    if not any(map(os.path.isdir, places)):
        raise UsageError(f"--user-dir is {user_dir}: expected an existing folder or an installed package")
    return user_dir


def import_plugin(package: str) -> None:
    """Imports `package`.fairseq_plugin if there is such a module."""
    if importlib.util.find_spec(f"{package}.fairseq_plugin") is not None:
        importlib.import_module(f"{package}.fairseq_plugin")


def find_installed_packages(module: Any) -> None:
    """Wraps `fairseq.utils.import_user_module`."""
    fairseq_dir = os.path.dirname(os.path.abspath(str(module.__file__)))

    @wraps(module, "import_user_module")
    def import_user_module(original: Any, args: Any) -> None:
        user_dir = getattr(args, "user_dir", None)
        if user_dir is None:
            return
        folder = resolve_user_dir(user_dir, fairseq_dir)
        original(argparse.Namespace(user_dir=folder))
        import_plugin(os.path.basename(os.path.abspath(folder)))


USER_DIR = Patch(
    name="user-dir",
    symptom="--user-dir NAME from another folder or after `import NAME`, or a wrong one: a traceback, unknown --arch",
    after={"fairseq.utils": find_installed_packages},
)
