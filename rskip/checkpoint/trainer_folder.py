"""Finds the newest checkpoint in the output folder of the Hugging Face Trainer."""

from __future__ import annotations

from pathlib import Path

from rskip.checkpoint.hugging_face import folder_at


def suggest_newest(folder: Path) -> str:
    """`give PATH ...` with the newest `checkpoint-STEP` in `folder`, for an error; "" if it holds none."""
    found = {path.name.removeprefix("checkpoint-"): path for path in folder.glob("checkpoint-*") if folder_at(path)}
    steps = [step for step in found if step.isdecimal()]
    return f"give {found[max(steps, key=int)]}, the newest checkpoint of the Hugging Face Trainer" if steps else ""
