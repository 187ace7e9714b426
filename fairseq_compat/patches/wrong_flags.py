"""Reports a wrong flag in one line, instead of more than a hundred lines of usage.

For an unknown `--arch` fairseq lists all architectures. The line names the nearest one instead, and the missing
`--user-dir`, which is the usual reason.
"""

from __future__ import annotations

import argparse
import difflib
import functools
import re
import sys
from typing import Any, NoReturn

from fairseq_compat.one_line_errors import MISTAKE
from fairseq_compat.patch import Patch

_CHOICE = re.compile(r"argument (\S+): invalid choice: '(.*?)' \(choose from (.*)\)", re.DOTALL)
_MANY = 8  # choices that one line lists
_NEAR = 0.85  # similarity of a misspelt name
_BY_PLUGINS = ("--arch", "--task", "--criterion", "--optimizer", "--lr-scheduler")


def one_line(message: str, *, has_user_dir: bool) -> str:
    """The line for an error of argparse.

    :param has_user_dir: whether `--user-dir` is given.
    """
    match = _CHOICE.fullmatch(" ".join(message.split()))
    if match is None:
        return " ".join(re.sub(r"invalid \S+ value: ", "expected another value than ", message).split())
    flag, given, known = match[1].split("/")[0], match[2], re.findall(r"[\w.+-]+", match[3])
    if near := difflib.get_close_matches(given, known, n=1, cutoff=_NEAR):
        return f"{flag} is {given}, which is unknown: did you mean {near[0]}?"
    if not has_user_dir and flag in _BY_PLUGINS:
        return f"{flag} is {given}, which is unknown: give the --user-dir that defines it, such as --user-dir rskip"
    return f"{flag} is {given}: expected {', '.join(known) if len(known) <= _MANY else 'a known one'}"


def report_in_one_line(module: Any) -> None:
    """Wraps `fairseq.options.get_parser`."""
    original = module.get_parser

    @functools.wraps(original)
    def get_parser(*args: Any, **kwargs: Any) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = original(*args, **kwargs)

        def error(message: str) -> NoReturn:
            has_user_dir = any(word.partition("=")[0] == "--user-dir" for word in sys.argv)
            line = one_line(message, has_user_dir=has_user_dir)
            parser.exit(MISTAKE, f"{parser.prog}: error: {line} (see {parser.prog} --help)\n")

        parser.error = error  # type: ignore[method-assign]
        return parser

    get_parser.in_one_line = True  # type: ignore[attr-defined]
    module.get_parser = get_parser


def active() -> bool:
    from fairseq import options

    return getattr(options.get_parser, "in_one_line", False)


WRONG_FLAGS = Patch(
    name="wrong-flags",
    modules=("fairseq.options",),
    symptom="an unknown --arch, or a forgotten --user-dir: more than a hundred lines of usage",
    after=report_in_one_line,
    active=active,
)
