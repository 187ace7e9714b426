"""Flags of generation that need an alignment which fairseq's programs don't make.

`--replace-unk` reads a dictionary named '@@ ' where none is given, and fails at its first unknown word where one is: it
expects one number for a target word, and search gives pairs or nothing. fairseq-interactive prints pairs, also where
`--print-alignment soft` asks for probabilities. Both are refused before the model is loaded.
"""

from __future__ import annotations

import functools
from argparse import Namespace
from typing import Any

from fairseq_compat.one_line_errors import UsageError
from fairseq_compat.patch import Patch

GENERATE, INTERACTIVE = "fairseq_cli.generate", "fairseq_cli.interactive"


def refuse(module: Any) -> None:
    """Wraps `main`."""
    original = module.main

    @functools.wraps(original)
    def main(cfg: Any) -> Any:
        flags = cfg if isinstance(cfg, Namespace) else cfg.generation
        if flags.replace_unk is not None:
            raise UsageError(
                "--replace-unk does not work in fairseq 0.12.2: leave it out; --print-alignment prints which "
                "source word each word is from"
            )
        if module.__name__ == INTERACTIVE and flags.print_alignment == "soft":
            raise UsageError("--print-alignment soft: fairseq-interactive prints hard ones only; use fairseq-generate")
        return original(cfg)

    main.refuses_alignments = True  # type: ignore[attr-defined]
    module.main = main


def active() -> bool:
    from fairseq_cli import generate, interactive

    return all(getattr(each.main, "refuses_alignments", False) for each in (generate, interactive))


ALIGNMENTS = Patch(
    name="alignments",
    modules=(GENERATE, INTERACTIVE),
    symptom="--replace-unk: FileNotFoundError '@@ '; fairseq-interactive --print-alignment soft: ValueError",
    after=refuse,
    active=active,
)
