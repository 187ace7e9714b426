"""Output files of `rskip caption`: their paths, which overwrite no image, and the lines of a complete one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict

from rskip.files.state import read_state_lines
from rskip.files.whole import real_path

MOST_ON_A_SHEET = 60  # images


class _Image(TypedDict):
    image: str


class _Written(_Image, total=False):
    error: str


def written_lines(output: Path) -> tuple[dict[str, str], dict[str, str]]:
    """The lines of captioned images in a complete output, and the errors of failed ones, both by path."""
    lines: dict[str, str] = {}
    errors: dict[str, str] = {}
    if output.exists():
        read = read_state_lines(output, _Written, advice="delete it to caption the images again", finished=True)
        with output.open(encoding="utf-8", newline="\n") as file:
            for line, (each, _) in zip(file, read, strict=True):
                if "error" in each:
                    errors[each["image"]] = each["error"]
                else:
                    lines[each["image"]] = line
    return lines, errors


def check_outputs(images: Sequence[Path], outputs: Mapping[str, Sequence[Path]]) -> None:
    """Checks that outputs don't overwrite an image or each other.

    :param outputs: the files of each output, by the output's name in errors.
    :raises ValueError: an output would overwrite a file; names both.
    """
    there = [(name, path) for name, paths in outputs.items() for path in paths if path.exists()]
    given = {real_path(path) for path in images} if there else set()
    for name, path in there:
        if real_path(path) in given:
            raise ValueError(f"{name} would overwrite the image {path}: choose another name or folder")
    writers: dict[Path, str] = {}
    for name, paths in outputs.items():
        for path in paths:
            if (other := writers.setdefault(real_path(path), name)) != name:
                raise ValueError(f"{other} and {name} would both write {path}: choose another name or folder")


def attention_files(images: Sequence[Path], folder: Path) -> list[Path]:
    """The file for the attention of each image: NAME.png, or NAME-2.png for a second image NAME.

    Skips numbers that the name of another image has. Names that differ only in case count as equal, as on some file
    systems.
    """
    stems, taken = {path.stem.casefold() for path in images}, set[str]()
    files = []
    for path in images:
        name, number = path.stem, 1
        while name.casefold() in taken or (number > 1 and name.casefold() in stems):
            number += 1
            name = f"{path.stem}-{number}"
        taken.add(name.casefold())
        files.append(folder / f"{name}.png")
    return files
