"""The description of a patch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Patch:
    """A change to modules of fairseq, made when they are imported.

    :param name: for FAIRSEQ_COMPAT_DISABLE and `rskip doctor`.
    :param modules: full names of the modules whose import triggers the patch.
    :param symptom: what a user sees without the patch, in one line.
    :param during: context in which such a module's code runs.
    :param after: called with such a module after its code has run.
    """

    name: str
    modules: tuple[str, ...]
    symptom: str
    during: Callable[[], AbstractContextManager[None]] | None = None
    after: Callable[[Any], None] | None = None


def wraps(owner: Any, name: str) -> Callable[[Callable[..., Any]], None]:
    """Decorates a function that replaces `owner.name`. It gets the original as its first argument."""
    original = getattr(owner, name)

    def install(function: Callable[..., Any]) -> None:
        @functools.wraps(original)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            return function(original, *args, **kwargs)

        setattr(owner, name, wrapped)

    return install
