"""Reads state files that rskip wrote: JSON with a declared type. Errors take one line.

A state file may be damaged by a full disk, a power cut, or a user's edit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from rskip.settings.check import convert
from rskip.settings.errors import SettingError
from rskip.settings.text import decoded, parse_json

T = TypeVar("T")

_MANY_DIGITS = re.compile(rb"\d{20}")


def read_state(path: Path, kind: type[T], *, advice: str) -> T:
    """The content of a JSON file as `kind`; see `rskip.settings.check.convert`.

    :param advice: what to do about a damaged file, such as "delete it to start again".
    :raises SettingError: the content is truncated, damaged, or of another type. Names the file and the key.
    :raises OSError: the file doesn't exist or can't be read.
    """
    return parse_state(path.read_bytes(), kind, source=str(path), advice=advice)


def read_state_lines(
    path: Path, kind: type[T], *, advice: str, head: Any = None, finished: bool = False
) -> Iterator[tuple[T, int]]:
    """Each line of a JSON lines file as `kind`, with the offset of its end in bytes.

    A killed process or a power cut can damage the end of the file: such an end is skipped. A damaged line before an
    intact one is an error, because the lines after it would be lost.

    :param advice: as for `read_state`.
    :param head: the type of the first line, if it differs from `kind`.
    :param finished: whether the file was complete on the disk; then a damaged end is an error too.
    :raises SettingError: a line is truncated, damaged, or of another type. Names the file, the line and the key.
    :raises OSError: the file doesn't exist or can't be read.
    """
    end, damage = 0, None
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            end += len(line)
            source = f"{path}, line {number}"
            try:
                if not (finished or line.endswith(b"\n")):
                    raise SettingError("", "is truncated", advice=advice, source=source)
                of = kind if number > 1 or head is None else head
                value = _as_written(line, of) or parse_state(line, of, source=source, advice=advice)
            except SettingError as error:
                damage = damage or error
                continue
            if damage is not None:
                raise damage
            yield value, end
    if finished and damage is not None:
        raise damage


def state_line(value: Any) -> str:
    """The line for a Struct, a dataclass or plain values, in a file that `read_state_lines` reads."""
    return json.dumps(msgspec.to_builtins(value), ensure_ascii=False) + "\n"


def _as_written(line: bytes, kind: type[T]) -> T | None:
    """The value of a line if rskip would write it byte for byte so, else None. Ten times as fast as `parse_state`."""
    if _MANY_DIGITS.search(line):  # msgspec accepts whole numbers of any length
        return None
    try:
        value = msgspec.json.decode(line, type=kind)
        return value if state_line(value).encode() == line else None
    except (msgspec.MsgspecError, RecursionError):
        return None


def parse_state(content: bytes, kind: type[T], *, source: str, advice: str) -> T:
    """A JSON text as `kind`.

    :param source: the text's name in errors.
    :param advice: as for `read_state`.
    :raises SettingError: as `read_state` does.
    """
    with _with_advice(source, advice):
        return convert(parse_json(decoded(content, source=source), source=source), kind)


def as_state(content: Any, kind: type[T], *, source: str, advice: str) -> T:
    """Values that were not read from JSON, as `kind`; see `parse_state`."""
    with _with_advice(source, advice):
        return convert(content, kind)


@contextmanager
def _with_advice(source: str, advice: str) -> Iterator[None]:
    try:
        yield
    except SettingError as error:
        problem = f"it {error.problem}" if not error.name and error.problem.startswith("is ") else error.problem
        raise SettingError(error.name, problem, expected=error.expected, advice=advice, source=source) from None
