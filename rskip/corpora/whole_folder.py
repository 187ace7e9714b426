"""Folders that are made whole or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_folder(output: Path) -> Iterator[Path]:
    """Gives an empty folder beside `output` that becomes `output` if the block ends well, or is removed.

    What a killed process left of it is removed first. An `output` that exists is replaced, so ask before.
    """
    building = output.with_name(f".{output.name}.building")
    replaced = output.with_name(f".{output.name}.replaced")
    if replaced.exists() and not output.exists():
        replaced.rename(output)  # a process was killed between the two renames below
    for left in (building, replaced):
        if left.exists():
            shutil.rmtree(left)
    building.mkdir(parents=True)
    try:
        yield building
        if output.exists():
            output.rename(replaced)
        building.rename(output)
    except BaseException:
        if replaced.exists() and not output.exists():
            replaced.rename(output)
        shutil.rmtree(building, ignore_errors=True)
        raise
    shutil.rmtree(replaced, ignore_errors=True)
