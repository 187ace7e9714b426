"""The profiling pass, which makes the initial checkpoint of a connection that needs it, with `rskip initialise`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rskip.checkpoint import read_checkpoint
from rskip.connections import find_family, parse_connection
from rskip.tasks.fairseq.flags import Flag
from rskip.tasks.process import run_logged
from rskip.tasks.run import Run

_WEIGHT = ".skip_weight"
_DECIMALS = 4


def needs_profile(flags: Mapping[str, Flag]) -> bool:
    """Whether a training with these flags begins with the pass, and not from a given model."""
    return flags.get("finetune-from-model") is None and bool(_profiled_stacks(flags))


def initialise(run: Run[Any], words: Sequence[str]) -> None:
    """Makes the checkpoint if it is missing."""
    if not starting_checkpoint(run).exists():
        print("profiling pass", flush=True)
        run_logged(initialise_command(run, words), log=run.folder.path / "initialise.log", lock=run.lock)


def initialise_command(run: Run[Any], words: Sequence[str]) -> list[str]:
    """The command `rskip initialise` with the arguments of fairseq-train."""
    return ["rskip", "initialise", "--output", str(starting_checkpoint(run)), *words]


def starting_checkpoint(run: Run[Any]) -> Path:
    """The path of the checkpoint."""
    return run.folder.path / "start.pt"


def profiled_weights(run: Run[Any], flags: Mapping[str, Flag]) -> dict[str, dict[str, float]]:
    """The part of a run record on the pass: its weights as `profiled`, by the names of the blocks."""
    if not needs_profile(flags):
        return {}
    model, stacks = read_checkpoint(starting_checkpoint(run)).model, _profiled_stacks(flags)
    found = {name: weight for name, weight in model.items() if name.startswith(stacks) and name.endswith(_WEIGHT)}
    return {"profiled": {name.removesuffix(_WEIGHT): round(found[name][0].item(), _DECIMALS) for name in found}}


def _profiled_stacks(flags: Mapping[str, Flag]) -> tuple[str, ...]:
    """The stacks (encoder, decoder) whose connection needs the pass."""
    specs = {side: flags.get(f"{side}-connection") or flags.get("connection") for side in ("encoder", "decoder")}
    return tuple(
        side
        for side, spec in specs.items()
        if spec is not None and find_family(parse_connection(str(spec)).family).needs_profile
    )
