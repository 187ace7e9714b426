"""The description of a patch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Patch:
    """A change to modules of fairseq, made when they are imported.

    :param name: for FAIRSEQ_COMPAT_DISABLE and `rskip doctor`.
    :param symptom: what a user sees without the patch, in one line.
    :param during: full names of modules, with the context in which each module's code runs.
    :param after: full names of modules, with what is called with each module after its code has run.
    """

    name: str
    symptom: str
    during: Mapping[str, Callable[[], AbstractContextManager[None]]] = field(default_factory=dict)
    after: Mapping[str, Callable[[Any], object]] = field(default_factory=dict)

    @property
    def modules(self) -> set[str]:
        """The modules whose import triggers the patch."""
        return {*self.during, *self.after}


def wraps(owner: Any, name: str) -> Callable[[Callable[..., Any]], None]:
    """Decorates a function that replaces `owner.name`. It gets the original as its first argument."""
    original = getattr(owner, name)

    def install(function: Callable[..., Any]) -> None:
        @functools.wraps(original)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            return function(original, *args, **kwargs)

        setattr(owner, name, wrapped)

    return install
