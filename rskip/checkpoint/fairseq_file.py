"""fairseq's own checkpoint files (.pt)."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import torch

from rskip.checkpoint.checkpoint import Checkpoint
from rskip.checkpoint.config import config_from_state, state_from_config
from rskip.files.torch_file import read_torch_file
from rskip.files.whole import atomic_file

# The types that fairseq leaves in its files, all of them inert: its settings, and metrics' numbers.
# numpy's constructors go by another module name in files that were written under numpy 1.
_NUMPY_CONSTRUCTORS = {
    name: getattr(numpy._core.multiarray, name)  # type: ignore[attr-defined]
    for name in ("scalar", "_reconstruct")
}
_ALLOWED: list[Any] = [
    Namespace,
    numpy.dtype,
    numpy.ndarray,
    *{type(numpy.dtype(code)) for code in "?bBhHiIlLqQefd"},
    *((function, f"numpy._core.multiarray.{name}") for name, function in _NUMPY_CONSTRUCTORS.items()),
    *((function, f"numpy.core.multiarray.{name}") for name, function in _NUMPY_CONSTRUCTORS.items()),
]
_AVERAGED_FROM = "averaged_from"
_KIND = "checkpoint of fairseq"


class Validation(NamedTuple):
    """What a checkpoint says of its own quality.

    score: the run's --best-checkpoint-metric on the validation data, None where there was no validation.
    higher_is_better: as --maximize-best-checkpoint-metric says.
    """

    score: float | None
    higher_is_better: bool


def read_fairseq(path: Path) -> Checkpoint:
    """Reads a .pt file that fairseq wrote, without the optimiser's state. Nothing in the file is executed.

    :raises FileNotFoundError: no file there.
    :raises ValueError: damaged, not from fairseq, or holding objects of types that no checkpoint needs.
    """
    state = _load(path)
    model = dict(state.pop("model"))
    state.pop("last_optimizer_state", None)
    averaged_from = tuple(state.pop(_AVERAGED_FROM, ()))
    return Checkpoint(
        model=model, config=config_from_state(state), averaged_from=averaged_from, fairseq_state=state
    )


def write_fairseq(path: Path, checkpoint: Checkpoint) -> None:
    """Writes a .pt file that fairseq-generate and `from_pretrained` load."""
    state = checkpoint.fairseq_state
    if state is None:
        state = state_from_config(checkpoint.config)
    state = {**state, "model": checkpoint.model}
    if checkpoint.averaged_from:
        state[_AVERAGED_FROM] = list(checkpoint.averaged_from)
    with atomic_file(path) as temporary, temporary.open("wb") as file:
        try:
            torch.save(state, file)
        except RuntimeError as error:
            raise OSError(f"could not write {path}: {_first_line(error)}") from error


def read_validation(path: Path) -> Validation:
    """The validation score inside a .pt file, without reading its tensors into memory."""
    state = _load(path, mmap=True)
    groups = state.get("cfg") or {}
    options = groups.get("checkpoint", {}) if groups else vars(state.get("args") or Namespace())
    score = (state.get("extra_state") or {}).get("val_loss")
    return Validation(
        score=None if score is None else float(score),
        higher_is_better=bool(options.get("maximize_best_checkpoint_metric", False)),
    )


def _load(path: Path, *, mmap: bool = False) -> dict[str, Any]:
    state = read_torch_file(path, kind=_KIND, allowed=_ALLOWED, mmap=mmap)
    if not isinstance(state.get("model"), Mapping):
        raise ValueError(f"{path} is no {_KIND}: it holds no 'model'")
    if not (state.get("cfg") or state.get("args")):
        raise ValueError(f"{path} is no {_KIND}: it holds neither 'cfg' nor 'args'")
    return state


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
