"""Refuses files of fairseq-preprocess and fairseq-score that differ in their numbers of lines.

fairseq-preprocess converts source, target and alignment separately, and training pairs sentences by their line numbers.
fairseq-score pairs translations and references in the same way. If a line is missing in one file, all later pairs are
wrong.
"""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Iterator
from typing import Any

from fairseq_compat.one_line_errors import UsageError
from fairseq_compat.patch import Patch, wraps

_BLOCK = 1 << 20  # bytes
_EXPECTED = "expected equal numbers, since line n of one translates line n of the other; find the missing line"


def count_lines(path: str) -> int:
    """The number of line feeds in the file, and the rest after the last one."""
    count, end = 0, b"\n"
    with open(path, "rb") as file:
        while block := file.read(_BLOCK):
            count += block.count(b"\n")
            end = block[-1:]
    return count + (end != b"\n")


def groups(args: Namespace) -> Iterator[list[str]]:
    """The files that must have equal numbers of lines, for each prefix. Missing files are left out."""
    if args.only_source or args.dict_only:
        return
    for prefixes in (args.trainpref, args.validpref, args.testpref):
        for prefix in (prefixes or "").split(","):
            names = [f"{prefix}.{end}" for end in (args.source_lang, args.target_lang, args.align_suffix) if end]
            yield [name for name in names if os.path.isfile(name)]


def paired(translations: Iterator[str], references: Iterator[str]) -> Iterator[tuple[str, str]]:
    """The pairs of lines."""
    try:
        yield from zip(translations, references, strict=True)
    except UsageError:  # a line that is not UTF-8
        raise
    except ValueError:
        raise UsageError(f"the files of --sys and --ref have different numbers of lines: {_EXPECTED}") from None


def pair_lines(module: Any) -> None:
    """Replaces the `zip` of fairseq_cli.score."""
    module.zip = paired


def compare_sides(module: Any) -> None:
    """Wraps `main` of fairseq_cli.preprocess."""

    @wraps(module, "main")
    def main(original: Any, args: Namespace) -> Any:
        for names in groups(args):
            counts = {name: count_lines(name) for name in names}
            if len({*counts.values()}) > 1:
                found = ", ".join(f"{name} {count:,}" for name, count in counts.items())
                raise UsageError(f"the files have different numbers of lines ({found}): {_EXPECTED}")
        return original(args)


UNEQUAL_SIDES = Patch(
    name="unequal-sides",
    symptom="fairseq-preprocess and fairseq-score accept files with different numbers of lines: later pairs are wrong",
    after={"fairseq_cli.preprocess": compare_sides, "fairseq_cli.score": pair_lines},
)
