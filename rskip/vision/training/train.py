"""Training a PreAct-ResNet on CIFAR, from settings and a seed to the last iterate, in pieces of any length."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch

from rskip.machine.ranks import Ranks
from rskip.vision.data import load_cifar
from rskip.vision.training.checkpoint import check_same_training, read_checkpoint
from rskip.vision.training.curve import CurvePoint
from rskip.vision.training.device import choose_device, process_group
from rskip.vision.training.progress import Progress
from rskip.vision.training.settings import TrainingSettings
from rskip.vision.training.stopping import Interrupted, StopSignals
from rskip.vision.training.training_folder import TrainingFolder
from rskip.vision.training.training_run import TrainingRun


@dataclass(frozen=True, kw_only=True)
class TrainingResult:
    """A finished training.

    model_file: the last iterate. iteration: how many were done. seconds: all pieces together.
    points: the learning curve; of several processes the first one alone knows the test figures.
    """

    model_file: Path
    iteration: int
    seconds: float
    points: tuple[CurvePoint, ...]

    @property
    def test_error(self) -> float | None:
        """The last iterate's error on the test images, %."""
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
    seed: int,
    device: str | None = None,
    tensorboard: bool = False,
) -> TrainingResult:
    """Trains to the end of the settings' iterations, from the start or from the folder's checkpoint.pt.

    Under torchrun the processes share every batch. On a CPU a training that was stopped and repeated ends with the same
    bytes as one that was not. Seeds torch's random numbers.

    :param folder: where everything is written, see `TrainingFolder`.
    :param data: the folder of the dataset; None: where `load_cifar` looks.
    :param seed: of the initial weights, the order of the images and their augmentation; 0 to 2⁶⁴ - 1.
    :param device: "cpu", "cuda", "cuda:1"; None: a GPU where there is one.
    :param tensorboard: write the curve for TensorBoard too.
    :raises Interrupted: SIGTERM or SIGINT came; the training is saved.
    :raises Diverged: the loss or a weight is not finite; what was saved before is kept.
    :raises ValueError: a mistake in what was given, a checkpoint of other settings, or a folder in use.
    :raises OSError: the data can't be read, or the disk is full.
    """
    ranks = Ranks.from_environment()
    files = TrainingFolder(folder)
    with process_group(ranks, device), ExitStack() as stack:
        with ranks.together():
            if not 0 <= seed < 2**64:
                raise ValueError(f"the seed is {seed}: expected 0 to {2**64 - 1}")
            place = choose_device(device, ranks)
            if ranks.first:
                stack.enter_context(files.lock())
        with ranks.together():
            checkpoint = read_checkpoint(files.checkpoint)
            if checkpoint is not None:
                check_same_training(
                    files.checkpoint, checkpoint, settings=settings.to_dict(), seed=seed, processes=ranks.count
                )
            images, test_images = (load_cifar(settings.dataset, data, train=part) for part in (True, False))
        with ranks.together():
            _check_shared(files, 0 if checkpoint is None else checkpoint.iteration, ranks)
        with ranks.together():
            run = TrainingRun(
                settings, images=images, test_images=test_images, files=files, seed=seed, device=place, ranks=ranks
            )
            if checkpoint is not None:
                run.go_on_from(checkpoint)
            run.begin_files(tensorboard=tensorboard)
        progress = stack.enter_context(
            Progress(iterations=run.iterations, done=run.iteration, epochs=run.epochs, told=ranks.first)
        )
        if settings.schedule == "step" and run.iterations <= (first := (*settings.milestones, 0)[0]):
            progress.tell(
                f"note: the learning rate never falls: the training ends after {run.iterations:,} iterations, and the "
                f"first of its milestones is {first:,}; give other milestones, or the schedule one_cycle"
            )
        signals = stack.enter_context(StopSignals(ranks))
        while True:
            if number := signals.received():
                run.save()
                interrupted = Interrupted(number, iteration=run.iteration, checkpoint=files.checkpoint)
                if not ranks.first:
                    ranks.leave(interrupted.status)
                raise interrupted
            if run.save_due:
                run.save()
            elif run.check_due:
                run.check()
            if run.point_due:
                progress.tell_point(run.add_point())
                if run.finished:
                    run.save()
            if run.finished:
                break
            run.step()
            progress.advance()
        run.finish()
        return TrainingResult(
            model_file=files.model, iteration=run.iteration, seconds=run.seconds, points=tuple(run.curve.points)
        )


def _check_shared(files: TrainingFolder, iteration: int, ranks: Ranks) -> None:
    """:raises ValueError: ranks of other machines see another checkpoint, or none."""
    here = torch.tensor(iteration)
    least, most = int(ranks.min(here)), int(ranks.max(here))
    if least != most:
        raise ValueError(
            f"{files.checkpoint}: one process finds iteration {least:,}, another {most:,}: all must see one folder; "
            "put --output where every machine can read it"
        )
