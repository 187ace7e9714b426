"""Trains a language model from settings and a seed to the last iterate, in any number of sessions."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from rskip.checkpoint.config_file import WEIGHTS
from rskip.files.whole import check_apart
from rskip.language_modeling.data import TextData
from rskip.language_modeling.settings import TrainingSettings
from rskip.language_modeling.training.curve import CurvePoint
from rskip.language_modeling.training.training_run import TrainingCheckpoint, TrainingRun
from rskip.machine.device import bfloat16_is_slow, choose_device, set_gpu_arithmetic
from rskip.machine.ranks import Ranks
from rskip.machine.terminal import duration
from rskip.settings.errors import SettingError
from rskip.tasks.loop import Observer, check_shared, process_group
from rskip.tasks.loop_folder import LoopFolder, read_checkpoint
from rskip.tasks.loop_run import train_to_the_end


@dataclass(frozen=True, kw_only=True)
class TrainingResult:
    """The result of a finished training.

    :param model_file: the weights of the last iterate.
    :param seconds: duration of all sessions.
    :param points: the learning curve, in the first process.
    :param name: name of the model and the text.
    """

    model_file: Path
    iteration: int
    seconds: float
    points: tuple[CurvePoint, ...]
    name: str


def train(
    settings: TrainingSettings,
    *,
    data: TextData,
    folder: Path,
    seed: int,
    device: str | None = None,
    observer: Observer | None = None,
) -> TrainingResult:
    """Trains to the end, from the start or from the folder's checkpoint.pt.

    Under torchrun the processes share every batch. On a CPU an interrupted and resumed training gives the same bytes as
    an uninterrupted one. It seeds torch's random numbers.

    :param folder: the output folder, see `LoopFolder`.
    :param seed: random seed of the initial weights, the batches and dropout; 0 to 2⁶³ - 1.
    :param device: "cpu", "cuda" or "cuda:1"; None: a GPU if available.
    :param observer: probes the training without changing its result.
    :raises Interrupted: SIGTERM or SIGINT stopped the training, which was saved.
    :raises Diverged: the loss or a weight is not finite. Earlier checkpoints stay.
    :raises ValueError: an argument is wrong, the checkpoint has other settings, or the folder is in use.
    """
    ranks = Ranks.from_environment()
    files = LoopFolder(folder)
    with process_group(ranks, device), ExitStack() as stack:
        with ranks.together():
            if not 0 <= seed < 2**63:
                raise ValueError(f"the seed is {seed}: expected 0 to {2**63 - 1}")
            check_apart(folder, data.path)
            place = choose_device(device, ranks)
            if settings.precision == "bfloat16" and bfloat16_is_slow(place):
                problem = f"is 'bfloat16' and {place} has no instructions for it"
                raise SettingError("precision", problem, expected="float32")
            set_gpu_arithmetic(place, training=True, same_shapes=True)
            if ranks.first:
                stack.enter_context(files.lock())
        with ranks.together():
            checkpoint = read_checkpoint(files.checkpoint, TrainingCheckpoint, written_by="rskip lm train")
        with ranks.together():
            check_shared(files, 0 if checkpoint is None else checkpoint.iteration, ranks)
        with ranks.together():
            run = TrainingRun(settings, data=data, files=files, seed=seed, device=place, ranks=ranks, observer=observer)
            if checkpoint is not None:
                run.restore(checkpoint)
            run.begin_files()
        train_to_the_end(
            run, line=lambda point: point_line(point, iterations=settings.iterations, unit=data.tokens.unit)
        )
        return TrainingResult(
            model_file=files.path / WEIGHTS,
            iteration=run.iteration,
            seconds=run.seconds,
            points=tuple(run.points),
            name=run.name,
        )


def point_line(point: CurvePoint, *, iterations: int, unit: str) -> str:
    """A line of text for a point of the curve of a training of so many iterations; `unit` is the name of a token."""
    parts = [
        f"iteration {point.iteration:,}/{iterations:,}",
        f"lr {point.lr:.4g}",
        f"loss per {unit}: training {point.train_loss:.4f}, validation {point.valid_loss:.4f}",
        f"{point.tokens_per_second:,.0f} {unit}s/s",
    ]
    if point.iteration < iterations:
        parts.append(f"{duration(point.seconds / point.iteration * (iterations - point.iteration))} left")
    return "   ".join(parts)
