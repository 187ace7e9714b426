"""The precision of a training by fairseq-train, which its flags ask for."""

from __future__ import annotations

from collections.abc import Mapping

from rskip.tasks.fairseq.flags import Flag

LOW_PRECISION = {"bf16": "bfloat16", "fp16": "float16", "amp": "float16"}  # fairseq-train's flags


def asked_precision(flags: Mapping[str, Flag]) -> str:
    """The precision that the flags ask for: "float32", "bfloat16" or "float16"."""
    return next((name for flag, name in LOW_PRECISION.items() if flags.get(flag)), "float32")


def flags_in(precision: str, flags: Mapping[str, Flag]) -> dict[str, Flag]:
    """The flags for a training in this precision: float32 turns off the flags of a lower one."""
    return {**flags, **(dict.fromkeys(flags.keys() & LOW_PRECISION, False) if precision == "float32" else {})}
