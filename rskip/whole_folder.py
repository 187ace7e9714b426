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
    recover(output)
    if building.exists():
        shutil.rmtree(building)
    building.mkdir(parents=True)
    try:
        yield building
        put_in_place(building, output)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise


def put_in_place(building: Path, output: Path) -> None:
    """Renames a folder to `output`, in the place of one that is there; of the two there is always one whole."""
    replaced = _replaced(output)
    recover(output)
    try:
        if output.exists():
            output.rename(replaced)
        building.rename(output)
    except BaseException:
        recover(output)
        raise
    shutil.rmtree(replaced, ignore_errors=True)


def recover(output: Path) -> None:
    """Undoes what a process that was killed in `put_in_place` left: the old folder is the output, or is gone."""
    replaced = _replaced(output)
    if not replaced.exists():
        return
    if output.exists():
        shutil.rmtree(replaced)
    else:
        replaced.rename(output)


def _replaced(output: Path) -> Path:
    return output.with_name(f".{output.name}.replaced")
