"""The folder of one run: whose it is, what it was started with, and who works in it now."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from rskip.experiments.config_difference import config_difference
from rskip.files.lock import folder_lock
from rskip.files.whole import atomic_file
from rskip.vision.training.training_folder import TrainingFolder


class RunFolder:
    """Paths of one run under `runs/<run name>/<seed>/`, and the settings that it is bound to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_file = path / "run.json"
        self.checkpoints = path / "checkpoints"
        self.train_log = path / "train.log"
        self.processes = path / "processes"
        self.precision = path / "precision"
        self.trained = path / "trained"
        self.averaged = path / "averaged.pt"
        self.training = TrainingFolder(path / "training")
        self.evaluation = path / "evaluation.json"

    @classmethod
    def of(cls, run_name: str, seed: int) -> RunFolder:
        """The folder of a run's seed, from the folder that `rskip run` is called in."""
        return cls(Path("runs", run_name, str(seed)))

    def generated(self, split: str) -> Path:
        """What fairseq-generate printed for the split."""
        return self.path / f"generate-{split}.txt"

    def bind(self, config: Mapping[str, Any]) -> None:
        """Writes the config into a new folder; raises ValueError where the folder belongs to another config.
        """
        if not self.config_file.exists():
            with atomic_file(self.config_file) as temporary:
                temporary.write_text(json.dumps(config, indent=2) + "\n")
            return
        started_with = json.loads(self.config_file.read_text())
        if started_with != config:
            raise ValueError(
                f"{self.path} was started with other settings ({config_difference(started_with, config)}): "
                "for another run give the change with --set, or move that folder away"
            )

    def keep_processes(self, count: int) -> None:
        """Holds a training to the number of processes that it was started with.

        fairseq goes on at a batch's number, which is another place in the data on another number of GPUs.

        :raises ValueError: another number than at its start.
        """
        if not self.processes.exists():
            with atomic_file(self.processes) as temporary:
                temporary.write_text(f"{count}\n")
        elif (before := int(self.processes.read_text())) != count:
            raise ValueError(
                f"{self.path} was started on {before} GPU{'s' * (before > 1)} and goes on there only, not on {count}: "
                f"give --gpus {before}, or move that folder away to start anew"
            )

    def keep_precision(self, chosen: str) -> str:
        """What a training was started in, `chosen` where it starts now: its checkpoints fit no other precision."""
        if not self.precision.exists():
            with atomic_file(self.precision) as temporary:
                temporary.write_text(f"{chosen}\n")
        return self.precision.read_text().strip()

    def lock(self) -> AbstractContextManager[int]:
        """Holds the folder for this process and the trainings that inherit the lock's descriptor, which it gives.

        :raises ValueError: another process holds it.
        """
        return folder_lock(
            self.path,
            busy=f"{self.path} is in use by another `rskip run` or by the training that it started "
            "(process {process}): wait for it, or stop it and repeat the command to go on",
        )
