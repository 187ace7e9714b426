"""State that rskip wrote and reads back: JSON as the type that it is declared as, or one line that says what is wrong.

Between the two a disk may have been full, the machine may have lost power, or somebody may have edited the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from rskip.settings.check import convert
from rskip.settings.errors import SettingError
from rskip.settings.text import decoded, parse_json

T = TypeVar("T")

_MANY_DIGITS = re.compile(rb"\d{20}")


def read_state(path: Path, kind: type[T], *, advice: str) -> T:
    """What the JSON file holds, as `kind`: see `rskip.settings.check.convert`.

    :param advice: what to do about a damaged file, such as "delete it to start again".
    :raises SettingError: it is cut off, damaged, or of another type; names the file and the key.
    :raises OSError: there is none, or it can't be read.
    """
    return parse_state(path.read_bytes(), kind, source=str(path), advice=advice)


def read_state_lines(
    path: Path, kind: type[T], *, advice: str, head: Any = None, finished: bool = False
) -> Iterator[tuple[T, int]]:
    """Each line of a file of JSON lines as `kind`, and where it ends.

    A process that is killed, or a machine that loses power, leaves a damaged end: it is left out. A damaged line before
    a whole one is refused, since what is behind it would be lost.

    :param advice: as `read_state` takes it.
    :param head: the type of the first line, where that is another one.
    :param finished: the file was whole on the disk: a damaged end is refused too.
    :raises SettingError: a line is cut off, damaged, or of another type; names the file, the line and the key.
    :raises OSError: there is none, or it can't be read.
    """
    end, damage = 0, None
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            end += len(line)
            source = f"{path}, line {number}"
            try:
                if not (finished or line.endswith(b"\n")):
                    raise SettingError("", "is cut off", advice=advice, source=source)
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
    """A Struct, a dataclass or plain values as a line of a file that `read_state_lines` reads."""
    return json.dumps(msgspec.to_builtins(value), ensure_ascii=False) + "\n"


def _as_written(line: bytes, kind: type[T]) -> T | None:
    """The value of a line that is, byte for byte, what rskip writes of it: ten times as fast as `parse_state`."""
    if _MANY_DIGITS.search(line):  # which msgspec takes for a whole number of any length
        return None
    try:
        value = msgspec.json.decode(line, type=kind)
        return value if state_line(value).encode() == line else None
    except (msgspec.MsgspecError, RecursionError):
        return None


def parse_state(content: bytes, kind: type[T], *, source: str, advice: str) -> T:
    """A JSON text as `kind`.

    :param source: names the text in errors.
    :param advice: as `read_state` takes it.
    :raises SettingError: as `read_state`.
    """
    try:
        plain = parse_json(decoded(content, source=source), source=source)
    except SettingError as error:
        raise _with_advice(error, source, advice) from None
    return as_state(plain, kind, source=source, advice=advice)


def as_state(content: Any, kind: type[T], *, source: str, advice: str) -> T:
    """What was read in another way than as JSON, as `kind`; see `parse_state`."""
    try:
        return convert(content, kind)
    except SettingError as error:
        raise _with_advice(error, source, advice) from None


def _with_advice(error: SettingError, source: str, advice: str) -> SettingError:
    problem = f"it {error.problem}" if not error.name and error.problem.startswith("is ") else error.problem
    return SettingError(error.name, problem, expected=error.expected, advice=advice, source=source)
