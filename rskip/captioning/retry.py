"""Tries failed images again: an output with failed images has a file of its settings, which `--resume` compares."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypedDict

from rskip.files.state import read_state, read_state_lines, state_line
from rskip.files.whole import atomic_file
from rskip.settings.differences import differences


class _Image(TypedDict):
    image: str


class _Written(_Image, total=False):
    error: str


def keep_settings(output: Path, settings: Mapping[str, Any]) -> dict[str, str]:
    """Keeps the settings of a complete output if images failed. Returns the errors of these images, by path."""
    failed = {each["image"]: each["error"] for each in _written(output) if "error" in each}
    forget_settings(output)
    if failed:
        with atomic_file(_settings_path(output)) as file:
            file.write_text(state_line(settings), encoding="utf-8")
    return failed


def forget_settings(output: Path) -> None:
    """Removes the settings of an output that is made again."""
    _settings_path(output).unlink(missing_ok=True)


def has_failed_images(output: Path) -> bool:
    """Whether a complete output has images that can be tried again."""
    return output.exists() and _settings_path(output).exists()


def lines_before(output: Path, settings: Mapping[str, Any]) -> dict[str, str]:
    """Lines of the captioned images in a complete output with failed images, by path; empty for any other output.

    :raises ValueError: the output was made with other settings, or one of its files is damaged.
    """
    if not has_failed_images(output):
        return {}
    before = read_state(_settings_path(output), dict[str, Any], advice=f"delete {output} to start again")
    if changes := differences(before, json.loads(state_line(settings))):
        raise ValueError(
            f"{output} has failed images and was made with other settings ({'; '.join(changes)}): use the same "
            f"settings to retry these images, or delete {output} to start again"
        )
    with output.open(encoding="utf-8", newline="\n") as lines:
        return {each["image"]: line for each, line in zip(_written(output), lines, strict=True) if "error" not in each}


def _written(output: Path) -> Iterator[_Written]:
    advice = "delete it to caption the images again"
    return (each for each, _ in read_state_lines(output, _Written, advice=advice, finished=True))


def _settings_path(output: Path) -> Path:
    return output.with_name(f"{output.name}.settings")
