"""What a patch is."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Patch:
    """A change to modules of fairseq, made from outside at the moment when they are imported.

    name: what FAIRSEQ_COMPAT_DISABLE and `rskip doctor` call it
    modules: full names of the modules whose import sets it off
    symptom: what a user meets without it, in one line
    active: imports fairseq and tells whether the patch is in force in this process
    during: context that such a module's code runs in
    after: called with such a module once its code has run
    """

    name: str
    modules: tuple[str, ...]
    symptom: str
    active: Callable[[], bool]
    during: Callable[[], AbstractContextManager[None]] | None = None
    after: Callable[[Any], None] | None = None
