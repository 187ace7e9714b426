"""Trains an image model from settings and a seed to the last iterate, in any number of sessions."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch

from rskip.files.whole import check_apart
from rskip.machine.device import bfloat16_is_slow, choose_device, set_gpu_arithmetic
from rskip.machine.ranks import Ranks
from rskip.machine.terminal import duration
from rskip.settings.errors import SettingError
from rskip.tasks.loop import Observer, check_shared, process_group
from rskip.tasks.loop_folder import check_same_training, read_checkpoint
from rskip.tasks.loop_run import train_to_the_end
from rskip.vision.data.labelled_files import find_labelled_files
from rskip.vision.data.own_images import load_own_images
from rskip.vision.datasets import load_dataset
from rskip.vision.evaluation import device_name
from rskip.vision.settings import TrainingSettings
from rskip.vision.training.curve import CurvePoint
from rskip.vision.training.training_folder import TrainingCheckpoint, TrainingFolder, check_same_images, identity
from rskip.vision.training.training_run import TrainingRun


@dataclass(frozen=True, kw_only=True)
class TrainingResult:
    """The result of a finished training.

    :param model_file: the file of the last iterate.
    :param iteration: number of iterations.
    :param seconds: duration of all sessions.
    :param points: the learning curve. With several processes, only the first one has test losses and errors.
    :param name: name of the model and the images, such as `PreAct-ResNet-20, 2rskip+ln, cifar10`.
    :param evaluated_on: "test", or "validation" for your own images.
    """

    model_file: Path
    iteration: int
    seconds: float
    points: tuple[CurvePoint, ...]
    name: str
    evaluated_on: str

    @property
    def test_error(self) -> float | None:
        """The last iterate's error on the test images in %."""
        return self.points[-1].test_error

    @property
    def test_loss(self) -> float | None:
        """The last iterate's mean cross-entropy on the test images, in nats."""
        return self.points[-1].test_loss


def train(
    settings: TrainingSettings,
    *,
    folder: Path,
    data: Path | None = None,
    download: bool = False,
    seed: int,
    device: str | None = None,
    tensorboard: bool = False,
    observer: Observer | None = None,
    notes: Sequence[str] = (),
) -> TrainingResult:
    """Trains to the end, from the start or from the folder's checkpoint.pt.

    Under torchrun the processes share every batch. On a CPU an interrupted and resumed training gives the same bytes as
    an uninterrupted one. It seeds torch's random numbers.

    :param folder: the output folder, see `TrainingFolder`.
    :param data: folder of the dataset; None: the default of `load_dataset`. Your own images are in `settings.data`.
    :param download: whether to download the dataset if it is missing or damaged.
    :param seed: random seed of the initial weights, the order of the images and their augmentation; 0 to 2⁶⁴ - 1.
    :param device: "cpu", "cuda" or "cuda:1"; None: a GPU if available.
    :param tensorboard: whether to write the curve for TensorBoard too.
    :param observer: probes the training without changing its result.
    :param notes: lines for the terminal, which are printed after data and folder were checked.
    :raises Interrupted: SIGTERM or SIGINT stopped the training, which was saved.
    :raises Diverged: the loss or a weight is not finite. Earlier checkpoints stay.
    :raises ValueError: an argument is wrong, the checkpoint has other settings, or the folder is in use.
    :raises OSError: the data can't be read.
    """
    ranks = Ranks.from_environment()
    files = TrainingFolder(folder)
    with process_group(ranks, device), ExitStack() as stack:
        with ranks.together():
            if not 0 <= seed < 2**64:
                raise ValueError(f"the seed is {seed}: expected 0 to {2**64 - 1}")
            if settings.data is not None:
                check_apart(folder, Path(settings.data))
            place = choose_device(device, ranks)
            if settings.sync_batch_norm and ranks.count > 1 and place.type == "cpu":
                problem = f"is true for {ranks.count} processes on a CPU"
                advice = "leave it out, or train in one process"
                raise SettingError("sync_batch_norm", problem, expected="GPUs", advice=advice)
            _check_device(settings, place)
            set_gpu_arithmetic(place, training=True, same_shapes=True)
            if ranks.first:
                stack.enter_context(files.lock())
        with ranks.together():
            checkpoint = read_checkpoint(files.checkpoint, TrainingCheckpoint, written_by="rskip vision train")
            if checkpoint is not None:
                there = identity(checkpoint.settings, seed=checkpoint.seed, processes=checkpoint.processes)
                now = identity(settings.to_dict(), seed=seed, processes=ranks.count)
                check_same_training(files.checkpoint, there, now)
            own = None
            if settings.data is not None:
                own = load_own_images(
                    find_labelled_files(Path(settings.data)),
                    size=settings.size,
                    preact=settings.model == "preact_resnet",
                    shown=ranks.first,
                )
                notes = [*notes, *own.notes]
                images, test_images = own.train, own.held_out
                if checkpoint is not None:
                    check_same_images(files.checkpoint, checkpoint.images, own.description)
            else:
                images, test_images = (
                    load_dataset(settings.dataset, data, train=part, download=download) for part in (True, False)
                )
        with ranks.together():
            check_shared(files, 0 if checkpoint is None else checkpoint.iteration, ranks)
        for note in notes if ranks.first else ():
            print(note, file=sys.stderr)
        with ranks.together():
            run = TrainingRun(
                settings,
                images=images,
                test_images=test_images,
                own=own,
                files=files,
                seed=seed,
                device=place,
                ranks=ranks,
                observer=observer,
            )
            if checkpoint is not None:
                run.restore(checkpoint)
            run.begin_files(tensorboard=tensorboard)
        notes = []
        if run.compile_error is not None:
            reason = (str(run.compile_error).strip() or type(run.compile_error).__name__).splitlines()[0]
            notes.append(f"note: training uncompiled, because torch.compile failed: {reason:.80}")
        first = (*settings.milestones, 0)[0]
        if settings.schedule == "step" and run.iterations <= first and ranks.first:
            notes.append(
                f"note: the learning rate never falls: the training ends after {run.iterations:,} iterations, and the "
                f"first of its milestones is {first:,}; give other milestones, or the schedule one_cycle"
            )
        train_to_the_end(
            run,
            line=lambda point: point_line(
                point, epochs=run.epochs, iterations=run.iterations, evaluated_on=run.evaluated_on
            ),
            notes=notes,
        )
        return TrainingResult(
            model_file=files.model,
            iteration=run.iteration,
            seconds=run.seconds,
            points=tuple(run.points),
            name=run.name,
            evaluated_on=run.evaluated_on,
        )


def _check_device(settings: TrainingSettings, place: torch.device) -> None:
    """:raises SettingError: this process's device doesn't support the settings."""
    if settings.precision == "bfloat16" and place.type == "cuda" and bfloat16_is_slow(place):
        problem = f"is 'bfloat16' and {place} is a {device_name(place)}, without bfloat16"
        raise SettingError("precision", problem, expected="float32", advice="or hide it with CUDA_VISIBLE_DEVICES")


def point_line(point: CurvePoint, *, epochs: int, iterations: int, evaluated_on: str = "test") -> str:
    """A line of text for a point of the curve of a training of so many epochs and iterations."""
    parts = [
        f"epoch {point.epoch}/{epochs}",
        f"iteration {point.iteration:,}",
        f"lr {point.lr:.4g}",
        f"training loss {point.train_loss:.4f}, error {point.train_error:.2f} %",
    ]
    if point.test_loss is not None:
        parts.append(f"{evaluated_on} loss {point.test_loss:.4f}, error {point.test_error:.2f} %")
    parts.append(f"{point.images_per_second:,.0f} images/s")
    if point.iteration < iterations:
        parts.append(f"{duration(point.seconds / point.iteration * (iterations - point.iteration))} left")
    return "   ".join(parts)
