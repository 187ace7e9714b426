"""Recognises configuration files of other programs by their keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_FAIRSEQ = {
    "common", "task", "model", "dataset", "optimization", "checkpoint", "criterion", "optimizer", "lr_scheduler",
    "distributed_training", "generation",
}  # fmt: skip
_JOEYNMT = {"data", "training", "model"}


def foreign_config(content: Mapping[str, Any]) -> tuple[str, str] | None:
    """The program that this configuration is for, and the command that takes it; None if it is not recognised.

    In the command, `{path}` stands for the file, `{folder}` for its folder, and `{name}` for its name without suffix.
    """
    sections = {key for key, value in content.items() if isinstance(value, Mapping)}
    if content.keys() >= _JOEYNMT and sections >= _JOEYNMT:
        return "JoeyNMT", "python -m joeynmt train {path}"
    if "src_vocab" in content or "save_data" in content:
        return "OpenNMT-py", "onmt_train -config {path}"
    named = [key for key in sections & _FAIRSEQ if "_name" in content[key]]
    if named or len(content.keys() & _FAIRSEQ) >= 3:
        return "fairseq (hydra)", "fairseq-hydra-train --config-dir {folder} --config-name {name}"
    return None
