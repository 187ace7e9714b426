"""Averages the parameters of checkpoints (Vaswani et al. 2017, section 6.1), and selects a run's checkpoints."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import isfinite
from pathlib import Path

import torch

from rskip.checkpoint.checkpoint import Checkpoint
from rskip.checkpoint.fairseq_file import read_updates, read_validation
from rskip.checkpoint.files import check_suffix, read_checkpoint, write_checkpoint
from rskip.checkpoint.tensors import tied_names

# Settings that may differ between checkpoints of one model, since they affect only training.
TRAINING_ALONE = re.compile(r".*drop.*|(checkpoint|offload)_activations|min_params_to_wrap")
# fairseq's names: checkpoint12.pt after epoch 12, checkpoint_3_4500.pt after update 4,500 (in epoch 3),
# checkpoint.best_loss_3.2101.pt for --keep-best-checkpoints (the score and a digit that distinguishes equal scores).
_NUMBERED = {"epoch": re.compile(r"checkpoint(\d+)\.pt"), "update": re.compile(r"checkpoint_\d+_(\d+)\.pt")}
_SCORED = re.compile(r"checkpoint\.best_(?P<metric>.+)_(?P<score>-?\d+(\.\d+)?)\.pt")


def average_checkpoints(paths: Sequence[str | os.PathLike[str]]) -> Checkpoint:
    """The mean of every floating-point tensor in float32, summed in the given order.

    Everything else (integer tensors, settings, fairseq's state) is from the last file. The sum and one file are in
    memory at a time.

    :raises ValueError: the files are from different models. The error names the first difference.
    """
    first = checkpoint = read_checkpoint(paths[0])
    total = {
        name: tensor.to(torch.float32, copy=True) if tensor.is_floating_point() else tensor
        for name, tensor in first.model.items()
    }
    tied = tied_names(first.model)
    first = checkpoint = replace(first, model=total)
    for path in paths[1:]:
        checkpoint = read_checkpoint(path)
        if difference := _difference(first, checkpoint, f"{paths[0]}", f"{path}"):
            raise ValueError(f"{difference}: average checkpoints of one model")
        for name, tensor in checkpoint.model.items():
            if tensor.is_floating_point():
                total[name] += tensor
            else:
                total[name] = tensor
        other_tied = tied_names(checkpoint.model)
        tied = {name: stored for name, stored in tied.items() if other_tied.get(name) == stored}
        checkpoint = replace(checkpoint, model=total)

    for tensor in total.values():
        if tensor.is_floating_point():
            tensor /= len(paths)
    total.update({name: total[stored] for name, stored in tied.items()})
    return replace(checkpoint, model=total, averaged_from=tuple(Path(path).name for path in paths))


def average_to_file(
    inputs: Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    *,
    dtype: torch.dtype = torch.float32,
) -> None:
    """Writes the average of `inputs` to `output`, in the format of its suffix.

    :raises ValueError: as `average_checkpoints`; or the output is one of the inputs, or its suffix is unknown.
    """
    check_suffix(output)
    for path in inputs:
        if os.path.exists(output) and os.path.exists(path) and os.path.samefile(output, path):
            raise ValueError(f"{output} is one of the checkpoints to average: choose another output")
    write_checkpoint(output, average_checkpoints(inputs), dtype=dtype)


def _difference(first: Checkpoint, other: Checkpoint, here: str, there: str) -> str:
    """What distinguishes the models of two checkpoints, in the files `here` and `there`; "" if nothing does."""
    if missing := first.model.keys() ^ other.model.keys():
        name = next(name for name in (*first.model, *other.model) if name in missing)
        lacking, having = (there, here) if name in first.model else (here, there)
        return f"{lacking} has no {name!r}, but {having} has"
    shapes, others = first.shapes, other.shapes
    for name in shapes:
        if shapes[name] != others[name]:
            return f"{name!r} has the shape {others[name]} in {there}, but {shapes[name]} in {here}"
    settings = [{"arch": each.config["arch"], **each.config["model"]} for each in (first, other)]
    for name in sorted(settings[0].keys() & settings[1].keys()):
        if settings[0][name] != settings[1][name] and not TRAINING_ALONE.fullmatch(name):
            return f"{name} is {settings[1][name]!r} in {there}, but {settings[0][name]!r} in {here}"
    return ""


def last_checkpoints(
    folder: str | os.PathLike[str], number: int, *, by: str = "epoch", up_to: int | None = None
) -> list[Path]:
    """The last `number` checkpoints of a folder, oldest first.

    :param by: "epoch" or "update": the series of fairseq's files.
    :param up_to: ignores checkpoints of later epochs or updates.
    :raises ValueError: the folder has fewer than `number`.
    """
    found = _numbered(Path(folder), by=by, up_to=up_to)
    _check_enough(found, number, folder, by=by, up_to=up_to)
    return found[-number:]


def final_checkpoints(folder: str | os.PathLike[str], number: int, *, by: str = "epoch") -> list[Path]:
    """The last `number` checkpoints of a finished training, oldest first, or all if it has fewer.

    If the training ended between two checkpoints of the series, its last parameters are only in checkpoint_last.pt,
    which then counts as the newest checkpoint.

    :param by: "epoch" or "update": the series of fairseq's files.
    :raises ValueError: the folder has no checkpoint.
    """
    found = _numbered(Path(folder), by=by)
    end = Path(folder) / "checkpoint_last.pt"
    if end.exists() and (not found or read_updates(end) != read_updates(found[-1])):
        found.append(end)
    _check_enough(found, 1, folder, by=by)
    return found[-number:]


def best_checkpoints(
    folder: str | os.PathLike[str], number: int, *, by: str | None = None, up_to: int | None = None
) -> list[Path]:
    """The `number` checkpoints of a folder with the best validation scores, best last.

    They are fairseq's `checkpoint.best_*` files if there are any. Otherwise, or with `by` or `up_to`, they are the
    checkpoints of epochs (or, with `by="update"`, of updates) with the best recorded scores. The run's flag
    --maximize-best-checkpoint-metric determines whether high scores are better. Of equal ones the later one is better.

    :raises ValueError: the folder has fewer than `number`, or they recorded no score.
    """
    folder = Path(folder)
    if by is None and up_to is None:
        scored = [path for path in sorted(folder.iterdir()) if _SCORED.fullmatch(path.name)]
        if scored:
            return best_scored(scored, number)
    by = by or "epoch"
    found = _numbered(folder, by=by, up_to=up_to)
    validations = {path: read_validation(path) for path in found}
    scores = {path: each.score for path, each in validations.items() if each.score is not None and isfinite(each.score)}
    if found and not scores:
        raise ValueError(
            f"none of the {len(found)} checkpoints in {folder} records a validation score: average the last ones"
        )
    _check_enough(list(scores), number, folder, by=by, up_to=up_to)
    return _best(scores, number, higher_is_better=validations[found[-1]].higher_is_better)


def best_scored(paths: Iterable[str | os.PathLike[str]], number: int) -> list[Path]:
    """The best `number` of fairseq's `checkpoint.best_<metric>_<score>.pt` files, best last."""
    scores: dict[Path, float] = {}
    metrics: set[str] = set()
    for path in sorted(map(Path, paths)):
        match = _SCORED.fullmatch(path.name)
        if match is None:
            raise ValueError(f"{path}: expected a name like checkpoint.best_loss_3.21.pt, with the score in it")
        scores[path] = float(match["score"])
        metrics.add(match["metric"])
    if len(metrics) > 1:
        raise ValueError(f"scores of {' and '.join(sorted(metrics))} can't be compared: name the files to average")
    if not 0 < number <= len(scores):
        raise ValueError(f"{number} best checkpoints asked for: expected 1 to {len(scores)}, the number of files")
    return _best(scores, number, higher_is_better=read_validation(next(iter(scores))).higher_is_better)


def _best(scores: dict[Path, float], number: int, *, higher_is_better: bool) -> list[Path]:
    return sorted(scores, key=lambda path: scores[path] if higher_is_better else -scores[path])[-number:]


def _numbered(folder: Path, *, by: str, up_to: int | None = None) -> list[Path]:
    matches = {path: _NUMBERED[by].fullmatch(path.name) for path in sorted(folder.iterdir())}
    numbers = {path: int(match[1]) for path, match in matches.items() if match}
    within = [path for path, number in numbers.items() if up_to is None or number <= up_to]
    return sorted(within, key=lambda path: numbers[path])


def _check_enough(
    found: list[Path], number: int, folder: str | os.PathLike[str], *, by: str, up_to: int | None = None
) -> None:
    if 0 < number <= len(found):
        return
    limit = "" if up_to is None else f" up to {by} {up_to}"
    other = "update" if by == "epoch" else "epoch"
    others = len(_numbered(Path(folder), by=other))
    hints = [f"ask for 1 to {len(found)}"] * bool(found) + [
        f"choose by {other} (--by {other}): it has {others}"
    ] * bool(others)
    if not hints and (last := Path(folder, "checkpoint_last.pt")).is_file():
        hints = [f"train to the end of an epoch, or use {last} as it is"]
    advice = f": {', or '.join(hints)}" if hints else ""
    raise ValueError(f"{number} {by} checkpoints asked for, but {folder} has {len(found)}{limit}{advice}")
