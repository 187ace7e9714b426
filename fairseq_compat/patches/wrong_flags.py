"""Reports a wrong flag in one line, instead of more than a hundred lines of usage.

For an unknown `--arch` fairseq lists all architectures. The line names the nearest one instead, and the missing
`--user-dir`, which is the usual reason. Without `--arch` fairseq ends with an empty RuntimeError.
"""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Iterable
from typing import Any, NoReturn

from fairseq_compat.one_line_errors import MISTAKE
from fairseq_compat.patch import Patch, wraps

_CHOICE = re.compile(r"argument (\S+): invalid choice: '(.*?)' \(choose from (.*)\)", re.DOTALL)
_UNKNOWN = re.compile(r"unrecognized arguments: (--[^ =]+)")
_MANY = 8  # choices that one line lists
_NEAR = 0.85  # similarity of a misspelt name
_SHORTEST = 5  # letters of a name that was cut short
_WRONG_TYPE = re.compile(r"(argument \S+): invalid (\S+) value: (.*)", re.DOTALL)
_EXPECTED = {
    "int": "a whole number",
    "float": "a number",
    "eval_str_list": "a number, or several separated by commas",
    "<lambda>": "a number, or several separated by commas",  # fairseq's lists
}
_BY_PLUGINS = ("--arch", "--task", "--criterion", "--optimizer", "--lr-scheduler")


def one_line(message: str, *, flags: Iterable[str], has_user_dir: bool) -> str:
    """The line for an error of argparse.

    :param flags: the flags that the parser knows.
    :param has_user_dir: whether `--user-dir` is given.
    """
    if (unknown := _UNKNOWN.match(message)) and (near := _nearest(unknown[1], flags)):
        return f"{unknown[1]} is an unknown flag: did you mean {near}?"
    match = _CHOICE.fullmatch(" ".join(message.split()))
    if match is None:
        if wrong := _WRONG_TYPE.fullmatch(message):
            message = f"{wrong[1]}: expected {_EXPECTED.get(wrong[2], 'another value')}, got {wrong[3]}"
        return " ".join(message.split())
    flag, given, known = match[1].split("/")[0], match[2], re.findall(r"[\w.+-]+", match[3])
    if near := _nearest(given, known):
        return f"{flag} is {given}, which is unknown: did you mean {near}?"
    if not has_user_dir and flag in _BY_PLUGINS:
        return f"{flag} is {given}, which is unknown: give the --user-dir that defines it, such as --user-dir rskip"
    return f"{flag} is {given}: expected {', '.join(known) if len(known) <= _MANY else 'a known one'}"


def _nearest(given: str, known: Iterable[str]) -> str | None:
    """The known name that is most similar to the given one, or that begins with it, apart from - and _."""
    names, begin = list(known), _letters(given)
    longer = [name for name in names if len(begin) >= _SHORTEST and _letters(name).startswith(begin)]
    return next(iter([*difflib.get_close_matches(given, names, n=1, cutoff=_NEAR), *longer]), None)


def _letters(name: str) -> str:
    return re.sub("[-_]", "", name).lower()


def report_in_one_line(module: Any) -> None:
    """Wraps `get_parser`, and `parse_args_and_arch` for a missing `--arch`."""

    @wraps(module, "parse_args_and_arch")
    def parse_args_and_arch(original: Any, parser: argparse.ArgumentParser, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(parser, *args, **kwargs)
        except RuntimeError as error:
            if error.args:
                raise
            parser.error("--arch is missing: give one, such as --arch transformer_rskip_ln with --user-dir rskip")

    @wraps(module, "get_parser")
    def get_parser(original: Any, *args: Any, **kwargs: Any) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = original(*args, **kwargs)

        def error(message: str) -> NoReturn:
            has_user_dir = any(word.partition("=")[0] == "--user-dir" for word in sys.argv)
            line = one_line(message, flags=parser._option_string_actions, has_user_dir=has_user_dir)
            parser.exit(MISTAKE, f"{parser.prog}: error: {line} (see {parser.prog} --help)\n")

        parser.error = error  # type: ignore[method-assign]
        return parser


WRONG_FLAGS = Patch(
    name="wrong-flags",
    symptom="an unknown or missing --arch, or a forgotten --user-dir: more than a hundred lines",
    after={"fairseq.options": report_in_one_line},
)
