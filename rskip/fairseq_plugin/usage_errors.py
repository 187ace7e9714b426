"""Turns errors of rskip's functions into fairseq's errors of one line, with the names of flags."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from fairseq_compat.one_line_errors import UsageError
from rskip.settings.errors import SettingError


def flag_of(name: str) -> str:
    """The flag that sets this attribute."""
    return "--" + name.replace("_", "-")


@contextmanager
def usage_errors(
    kinds: tuple[type[Exception], ...] = (ValueError,), *, named: Mapping[str, str] | None = None, before: str = ""
) -> Iterator[None]:
    """Raises `UsageError` for errors of these kinds in the block.

    :param named: the attributes for settings that have another name in fairseq.
    :param before: the beginning of the line.
    """
    try:
        yield
    except kinds as error:
        line = str(error)
        if isinstance(error, SettingError) and error.name:
            line = error.sentence(flag_of((named or {}).get(error.name, error.name)))
        raise UsageError(f"{before}{line}") from error
