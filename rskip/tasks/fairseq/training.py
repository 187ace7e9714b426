"""Runs one training with fairseq-train, which is a stage of a run.

If its connection needs one, a profiling pass makes the initial checkpoint with `rskip initialise`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rskip.checkpoint import read_checkpoint
from rskip.connections import find_family, parse_connection
from rskip.files.whole import atomic_file
from rskip.tasks.fairseq.flags import Flag, device_arguments, flags_on_gpu, flags_to_arguments
from rskip.tasks.fairseq.log import epoch_lines
from rskip.tasks.process import launched, run_logged
from rskip.tasks.run import Run, new_lines

_LOW_PRECISION = {"bf16": "bfloat16", "fp16": "float16", "amp": "float16"}  # fairseq-train's flags
_LOG_INTERVAL = 100  # updates between two lines in train.log
_WEIGHT = ".skip_weight"
_DECIMALS = 4


@dataclass(frozen=True, kw_only=True)
class FairseqTraining:
    """One training with fairseq-train.

    :param stage: the section of the recipe that holds its flags.
    :param data: arguments for the data folder, task and user-dir.
    :param flags: the recipe's flags of fairseq-train, for the run's number of GPUs.
    :param options: further arguments, such as the checkpoints to keep.
    :param checkpoints: the folder of its checkpoints.
    :param finished: the file that marks a completed training.
    :param start: the initial checkpoint; None: initial weights, or those of the profiling pass.
    """

    run: Run[Any]
    stage: str = "train"
    data: Sequence[str]
    flags: Mapping[str, Flag]
    options: Sequence[str]
    checkpoints: Path
    finished: Path
    start: Path | None = None

    @property
    def done(self) -> bool:
        """Whether the training is complete."""
        return self.finished.exists()

    @property
    def precision(self) -> str:
        """The precision that the flags ask for: "float32", "bfloat16" or "float16"."""
        return next((name for flag, name in _LOW_PRECISION.items() if self.flags.get(flag)), "float32")

    def complete(self) -> None:
        """Trains to the end, from the last checkpoint if there is one. Does nothing if the training is complete."""
        if self.done:
            return
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        if self._profiled and not starting_checkpoint(self.run).exists():
            print("profiling pass", flush=True)
            run_logged(self._initialise_command, log=self.run.folder.path / "initialise.log", lock=self.run.lock)
        precision = self.run.begin_session(stage=self.stage, asked=self.precision)
        self.run.train(
            self.command(precision),
            resumed=(self.checkpoints / "checkpoint_last.pt").exists(),
            report=new_lines(self.run.folder.train_log, self._epoch_lines),
        )
        with atomic_file(self.finished) as temporary:
            temporary.write_text("training came to its end\n")

    def _epoch_lines(self, log: Path) -> list[str]:
        ends = (self.flags.get(name) for name in ("max-epoch", "max-update"))
        epochs, updates = (end if isinstance(end, int) else 0 for end in ends)
        by_update = bool(self.flags.get("save-interval-updates"))
        return epoch_lines(log, epochs=epochs, updates=updates, by_update=by_update)

    def command(self, precision: str) -> list[str]:
        """The command `fairseq-train`, under `torchrun` for several GPUs. It resumes from `checkpoint_last.pt`.

        :param precision: "float32" overrides the precision that the recipe's flags ask for.
        """
        run, gpus = self.run, self.run.gpus
        start = starting_checkpoint(run) if self._profiled else self.start
        return [
            *launched("fairseq-train", gpus=gpus),
            *self.data,
            *("--seed", str(run.seed), "--save-dir", str(self.checkpoints)),
            *(["--finetune-from-model", str(start)] if start else []),
            *self.options,
            *("--log-format", "json"),
            *([] if "log-interval" in self.flags else ["--log-interval", str(_LOG_INTERVAL)]),
            *([] if gpus > 1 else device_arguments(gpu=gpus > 0)),
            *self._recipe_flags(precision),
            *run.probe_flags,
        ]

    def commands(self, precision: str) -> list[list[str]]:
        """The commands: `rskip initialise` if the training begins with the profiling pass, then `command`."""
        return [*([self._initialise_command] if self._profiled else []), self.command(precision)]

    @property
    def _profiled(self) -> bool:
        return self.start is None and needs_profile(self.flags)

    @property
    def _initialise_command(self) -> list[str]:
        """`rskip initialise`, with fairseq-train's arguments that determine the initial weights and the first batch."""
        output, seed = str(starting_checkpoint(self.run)), str(self.run.seed)
        return ["rskip", "initialise", "--output", output, *self.data, "--seed", seed, *self._recipe_flags("float32")]

    def _recipe_flags(self, precision: str) -> list[str]:
        flags = dict(self.flags)
        if precision == "float32":
            flags |= dict.fromkeys(flags.keys() & _LOW_PRECISION, False)
        return flags_to_arguments(flags_on_gpu(flags) if self.run.gpus > 0 else flags)


def needs_profile(flags: Mapping[str, Flag]) -> bool:
    """Whether a training with these flags begins with the pass, and not from a given model."""
    return flags.get("finetune-from-model") is None and bool(_profiled_stacks(flags))


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
