"""Disks that fail and processes that are killed, in this process."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

MAKING = ("fsync", "rename", "replace", "mkdir")
CHANGES = (*MAKING, "rmdir", "unlink")


def intercept(monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...], before: Callable[[], None]) -> None:
    """Calls `before` before each of these functions of the os module."""

    def intercepted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            before()
            return function(*arguments, **options)

        return call

    for name in names:
        monkeypatch.setattr(os, name, intercepted(getattr(os, name)))


@pytest.fixture
def failing_everywhere(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], Iterator[OSError | None]]:
    """Does the work again and again: each time another change on the disk fails for want of space, from the first on.

    Gives what the work raised, None where it raised nothing.
    """

    def failing_everywhere(work: Callable[[], None]) -> Iterator[OSError | None]:
        left = 0

        def count() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        for number in itertools.count(1):
            left, error = number, None
            with monkeypatch.context() as patch:
                intercept(patch, MAKING, count)
                try:
                    work()
                except OSError as raised:
                    error = raised
            if left > 0:
                return
            yield error

    return failing_everywhere


@pytest.fixture
def killed_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Iterator[Path]]:
    """Gives the folder as a process leaves it that is killed before each change on the disk, one after the other.

    What the last one leaves is what it leaves when nothing kills it.
    """

    def killed_everywhere(folder: Path, work: Callable[[], None]) -> Iterator[Path]:
        states = tmp_path / "states"
        taken: list[Path] = []

        def keep() -> None:
            with monkeypatch.context() as patch:  # copying changes the disk too
                for name, function in real.items():
                    patch.setattr(os, name, function)
                taken.append(states / str(len(taken)))
                shutil.copytree(folder, taken[-1])

        real = {name: getattr(os, name) for name in CHANGES}
        with monkeypatch.context() as patch:
            intercept(patch, CHANGES, keep)
            work()
        keep()
        for state in taken:
            shutil.rmtree(folder)
            shutil.copytree(state, folder)
            yield folder

    return killed_everywhere


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files whose content was sent to the disk, in the order in which that was done."""
    names: list[str] = []

    def fsync(descriptor: int) -> None:
        names.append(Path(f"/proc/self/fd/{descriptor}").resolve().name)

    monkeypatch.setattr(os, "fsync", fsync)
    return names
