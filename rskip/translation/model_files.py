"""The files of a model: its checkpoint and its dictionaries, and the languages that name them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rskip.text import Dictionary

_SUFFIXES = (".safetensors", ".pt")
_PREFERRED = ("model.safetensors", "model.pt")


class Languages(NamedTuple):
    """What a model translates from and to."""

    source: str
    target: str


def find_checkpoint(path: str | os.PathLike[str]) -> Path:
    """The checkpoint file that `path` is, or that the folder `path` holds.

    :raises FileNotFoundError: neither, or a folder without a checkpoint.
    :raises ValueError: a folder with several checkpoints, none of them called model.safetensors or model.pt.
    """
    path = Path(path)
    if path.is_file():
        return path
    if not path.is_dir():
        raise FileNotFoundError(
            f"no model {path}: expected a checkpoint file ({', '.join(_SUFFIXES)}), or a folder that holds one, its "
            "dictionaries and its text pipeline (`rskip zoo list` shows the names that rskip.load takes)"
        )
    for name in _PREFERRED:
        if (path / name).is_file():
            return path / name
    found = sorted(each for each in path.iterdir() if each.suffix in _SUFFIXES)
    if not found:
        raise FileNotFoundError(f"no checkpoint ({', '.join(_SUFFIXES)}) in the folder {path}")
    if len(found) > 1:
        raise ValueError(f"{path} holds {len(found)} checkpoints: give one of them, such as {found[0]}")
    return found[0]


def find_languages(
    *,
    given: tuple[str | None, str | None],
    checkpoint: Mapping[str, Any],
    pipeline: tuple[str, str] | None,
    folders: Sequence[Path],
) -> Languages:
    """The model's languages: as given; else as the checkpoint says; else those of the text pipeline; else those in
    the names of the data's files beside the dictionaries (`train.en-de.en.idx`) or of the two dictionaries, where one
    language is known.

    :param checkpoint: the checkpoint's `config`.
    :raises ValueError: none of them tells, or the checkpoint says the opposite of what is given.
    """
    own = checkpoint["source_lang"], checkpoint["target_lang"]
    if own[0] != own[1] and given == own[::-1]:
        raise ValueError(f"the model translates {own[0]} to {own[1]}, not {given[0]} to {given[1]}")
    source, target = given[0] or own[0], given[1] or own[1]
    pairs: Iterable[tuple[str, str]] = _language_pairs(pipeline, folders)
    for pair in pairs:
        if source and target:
            break
        if source == pair[1] or target == pair[0]:
            pair = (pair[1], pair[0])
        if source in (None, pair[0]) and target in (None, pair[1]):
            source, target = pair
    dictionaries = sorted({name for folder in folders for name in _dictionary_names(folder)})
    if (source is None) != (target is None) and len(dictionaries) == 2 and (source or target) in dictionaries:
        other = next(name for name in dictionaries if name != (source or target))
        source, target = source or other, target or other
    if not (source and target):
        found = ", ".join(f"dict.{name}.txt" for name in dictionaries) or "none"
        missing = " and ".join(
            f"{side}_language=" for side, known in (("source", source), ("target", target)) if not known
        )
        raise ValueError(f"the checkpoint doesn't say what it translates: give {missing} (dictionaries: {found})")
    return Languages(source, target)


def load_dictionary(names: Iterable[str | None], folders: Sequence[Path]) -> Dictionary:
    """The dictionary dict.<name>.txt of the first folder and the first name that has one.

    :raises FileNotFoundError: there is none, or a folder is missing.
    :raises ValueError: it is no dictionary.
    """
    wanted = [f"dict.{name}.txt" for name in names if name]
    for folder in folders:
        if not folder.is_dir():
            raise FileNotFoundError(f"no folder {folder}: give the one that holds {wanted[0]}")
        for name in wanted:
            if (folder / name).is_file():
                return Dictionary.load(folder / name)
    raise FileNotFoundError(
        f"no {wanted[0]} in {' or '.join(map(str, folders))}: give dictionaries= (--dictionaries), the folder that "
        "fairseq-preprocess or `rskip prepare` wrote"
    )


def _language_pairs(pipeline: tuple[str, str] | None, folders: Sequence[Path]) -> Iterator[tuple[str, str]]:
    if pipeline is not None:
        yield pipeline
    for folder in folders:
        for path in sorted(folder.glob("*.*-*.*.idx")):
            source, _, target = path.name.split(".")[1].partition("-")
            yield source, target


def _dictionary_names(folder: Path) -> list[str]:
    names = (path.name.split(".") for path in folder.glob("dict.*.txt"))
    return [parts[1] for parts in names if len(parts) == 3]
