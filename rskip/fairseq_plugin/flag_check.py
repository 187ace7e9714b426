"""Whether fairseq's own parser takes flags: `python -m rskip.fairseq_plugin.flag_check`, which rskip.tasks starts.

Reads JSON from standard input: by any name the `program`, the words `before` its flags, and the words of each of its
`flags`. Writes JSON: by the name of each that is refused the flag that is at fault ("" where it is not one alone), and
why.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

from fairseq import options


class _Refused(Exception):
    pass


def refusal(program: str, before: Sequence[str], flags: Mapping[str, Sequence[str]]) -> tuple[str, str] | None:
    """The flag that is at fault and why; None: the program takes them."""
    why = _parse(program, before, flags)
    if why is None:
        return None
    without = {flag: _parse(program, before, {name: flags[name] for name in flags if name != flag}) for flag in flags}
    others = [flag for flag in flags if without[flag] != why]  # such as arch, without which it takes no other flags
    return next((flag for flag in flags if without[flag] is None), others[0] if len(others) == 1 else ""), why


def _parse(program: str, before: Sequence[str], flags: Mapping[str, Sequence[str]]) -> str | None:
    words = [*before, *(word for each in flags.values() for word in each)]
    sys.argv = [program, *words]  # where fairseq looks for --user-dir
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            training = program == "fairseq-train"
            parser = options.get_training_parser() if training else options.get_generation_parser()
            parser.error = _refuse
            options.parse_args_and_arch(parser, words)
        except SystemExit:  # --help
            return "it ends before any work"
        except Exception as error:  # fairseq evaluates some flags' texts as Python, which may raise anything
            return " ".join(str(error).split()) or type(error).__name__
    return None


def _refuse(message: str) -> NoReturn:
    raise _Refused(message)


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    found = {name: refusal(each["program"], each["before"], each["flags"]) for name, each in asked.items()}
    json.dump({name: why for name, why in found.items() if why}, sys.stdout)
