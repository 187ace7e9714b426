"""Refuses generation flags that need alignments which the generator doesn't compute.

Without a value, `--replace-unk` reads a dictionary named '@@ '. With a dictionary it expects one source position per
target word, but beam search returns pairs or nothing, and fairseq fails at the first unknown word. fairseq-interactive
can print only pairs, although `--print-alignment soft` asks for probabilities.
"""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from fairseq_compat.one_line_errors import UsageError
from fairseq_compat.patch import Patch, wraps

INTERACTIVE = "fairseq_cli.interactive"
_NO_DICTIONARY = "@@ "  # --replace-unk without a value
_ADVICE = "leave it out; --print-alignment prints the source word of each translated word"


def refuse_flags(module: Any) -> None:
    """Wraps `main` of fairseq-generate or fairseq-interactive."""

    @wraps(module, "main")
    def main(original: Any, cfg: Any) -> Any:
        flags = cfg if isinstance(cfg, Namespace) else cfg.generation
        if getattr(flags, "replace_unk", None) == _NO_DICTIONARY:
            raise UsageError(f"--replace-unk does not work without a dictionary in fairseq 0.12.2: {_ADVICE}")
        if module.__name__ == INTERACTIVE and getattr(flags, "print_alignment", None) == "soft":
            raise UsageError("--print-alignment soft: fairseq-interactive supports only hard; use fairseq-generate")
        return original(cfg)


def refuse_pairs(module: Any) -> None:
    """Wraps `fairseq.utils.replace_unk`."""

    @wraps(module, "replace_unk")
    def replace_unk(original: Any, hypo_str: str, src_str: str, alignment: Any, align_dict: Any, unk: str) -> str:
        words = hypo_str.split()
        aligned = getattr(alignment, "ndim", None) == 1 and len(alignment) >= len(words)
        if unk in words and not aligned:
            raise UsageError(f"--replace-unk needs one source position per word, which beam search lacks: {_ADVICE}")
        return original(hypo_str, src_str, alignment, align_dict, unk)


ALIGNMENTS = Patch(
    name="alignments",
    symptom="--replace-unk: FileNotFoundError '@@ '; fairseq-interactive --print-alignment soft: ValueError",
    after={"fairseq_cli.generate": refuse_flags, INTERACTIVE: refuse_flags, "fairseq.utils": refuse_pairs},
)
