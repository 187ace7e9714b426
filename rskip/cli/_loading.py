"""Imports and loads without garbage collection."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def loading_for_good() -> Iterator[None]:
    """Turns garbage collection off for a block that loads objects for the whole process, such as PyTorch.

    Otherwise Python searches those 200,000 objects for cycles during the import and again at exit, which takes a third
    of the import's time.
    """
    if not gc.isenabled():  # within such a block
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
