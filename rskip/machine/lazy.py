"""Members of a package that are imported on first use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module

from rskip.extras import missing_torch


def imported_on_use(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """The `__getattr__` of a package whose import shall load nothing else, such as torch, which takes a second::

        __getattr__ = imported_on_use(__name__, {"Translator": "translator"})

    :param package: the package's name.
    :param homes: the module in the package that defines each member.
    """

    def member(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            return getattr(import_module(f"{package}.{homes[name]}"), name)
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise missing_torch(f"{package}.{name}", error) from error

    return member
