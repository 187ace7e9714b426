"""Imports the package with a user's own connections, which `--user-dir` or the environment variable names."""

from __future__ import annotations

import importlib
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from rskip.settings.errors import SettingError

ENVIRONMENT = "RSKIP_USER_DIR"
_FLAG: ContextVar[str | None] = ContextVar("flag", default=None)  # the running command's --user-dir


@contextmanager
def user_dir(given: str | None) -> Iterator[None]:
    """Imports the user-dir of a command: the given one, or that of the environment.

    Child processes that start within the block import it too.

    :param given: a folder; None: not given.
    :raises SettingError: as `import_user_dir`.
    """
    before = os.environ.get(ENVIRONMENT)
    if folder := given or before:
        import_user_dir(Path(folder), setting="--user-dir" if given else ENVIRONMENT)
        os.environ[ENVIRONMENT] = str(Path(folder).resolve())
    flag = _FLAG.set(given)
    try:
        yield
    finally:
        _FLAG.reset(flag)
        if before is None:
            os.environ.pop(ENVIRONMENT, None)
        else:
            os.environ[ENVIRONMENT] = before


def suggested_command(*words: str) -> str:
    """A command that rskip suggests, for a shell: with the --user-dir of the running command, if it was given."""
    given = _FLAG.get()
    return shlex.join([*words, *(["--user-dir", given] if given else [])])


def import_user_dir(folder: Path, *, setting: str) -> None:
    """Imports a user-dir like fairseq, so that its connections are registered.

    :param setting: the setting's name, for errors.
    :raises SettingError: the package does not exist, importing it fails, or its name is that of another module.
    """
    if not (folder / "__init__.py").is_file():
        raise SettingError.of_value(setting, str(folder), "an existing folder with an __init__.py")
    parent = str(folder.resolve().parent)
    if parent not in sys.path:
        sys.path.insert(0, parent)
    name = folder.resolve().name
    if "." in name:
        raise SettingError(setting, f"is {folder}, which has a dot in its name", advice="rename the folder")
    try:
        module = importlib.import_module(name)
    except Exception as error:  # the user's code may raise anything
        problem = f"is {folder}, which can't be imported ({type(error).__name__}: {error})"
        raise SettingError(setting, problem) from error
    if module.__file__ is None or not Path(module.__file__).samefile(folder / "__init__.py"):
        problem = f"is {folder}, but Python has another module named {name} ({module.__file__ or 'without a file'})"
        raise SettingError(setting, problem, advice="rename the folder")
