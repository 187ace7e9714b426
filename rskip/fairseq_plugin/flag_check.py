"""Checks flags with fairseq's own parser: `python -m rskip.fairseq_plugin.flag_check`, which rskip.tasks starts.

It reads JSON from standard input: a mapping from any name to `program`, the words `before` its flags, and the words of
each of its `flags`. It writes JSON: for each refused name, the wrong flag ("" if it is more than one), and the reason.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn

from fairseq import options

from fairseq_compat.one_line_errors import UsageError
from rskip.fairseq_plugin.flags import add_flags, fairseq_flags
from rskip.settings.errors import nearest

_UNKNOWN = re.compile(r"unrecognized arguments: --([\w-]+)")


def parse(program: str, words: Sequence[str]) -> Namespace:
    """The arguments of a program of fairseq, by its own parser.

    :raises UsageError: a flag is wrong.
    """
    before = sys.argv
    sys.argv = [program, *words]  # fairseq looks for --user-dir here
    try:
        training = program == "fairseq-train"
        parser = options.get_training_parser() if training else options.get_generation_parser()
        parser.error = functools.partial(_refuse, known=parser._option_string_actions)
        return options.parse_args_and_arch(parser, list(words))
    except UsageError:
        raise
    except SystemExit:  # --help
        raise UsageError("it prints help and exits") from None
    except Exception as error:  # fairseq evaluates some flags as Python, which may raise anything
        raise UsageError(" ".join(str(error).split()) or type(error).__name__) from error
    finally:
        sys.argv = before


def refusal(program: str, before: Sequence[str], flags: Mapping[str, Sequence[str]]) -> tuple[str, str] | None:
    """The wrong flag and the reason, or None if the program accepts all flags."""
    why = _parse(program, before, flags)
    if why is None:
        return None
    without = {flag: _parse(program, before, {name: flags[name] for name in flags if name != flag}) for flag in flags}
    others = [flag for flag in flags if without[flag] != why]  # such as arch, which adds most flags
    return next((flag for flag in flags if without[flag] is None), others[0] if len(others) == 1 else ""), why


def _parse(program: str, before: Sequence[str], flags: Mapping[str, Sequence[str]]) -> str | None:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            parse(program, [*before, *(word for each in flags.values() for word in each)])
        except UsageError as error:
            return str(error)
    return None


def _refuse(message: str, known: Iterable[str]) -> NoReturn:
    """Raises the parser's error, with the nearest of its flags for an unknown one."""
    unknown = _UNKNOWN.match(message)
    if unknown and unknown[1].replace("-", "_") in _own_flags() and "--arch" in known:
        raise UsageError(f"--{unknown[1]} needs an architecture of rskip, such as transformer_skip_ln_iwslt")
    near = nearest(unknown[1], (flag.lstrip("-") for flag in known)) if unknown else []
    raise UsageError(f"{message}; did you mean {near[0]}?" if near else message)


@functools.cache
def _own_flags() -> frozenset[str]:
    """The attributes of the flags that only our architectures have."""
    parser = ArgumentParser()
    add_flags(parser)
    return frozenset(vars(parser.parse_args([]))) - fairseq_flags()


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    found = {name: refusal(each["program"], each["before"], each["flags"]) for name, each in asked.items()}
    json.dump({name: why for name, why in found.items() if why}, sys.stdout)
