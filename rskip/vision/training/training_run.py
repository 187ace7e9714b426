"""Holds the state of a training and does its steps: iterations, checks, points of the curve, checkpoints."""

from __future__ import annotations

import math
import time
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rskip.checkpoint import Checkpoint, write_model
from rskip.connections import parse_connection
from rskip.connections.norms import at_least_float32, take_batch_counts
from rskip.machine.ranks import Ranks
from rskip.settings.check import to_plain
from rskip.tasks.loop import Diverged, Observer, OutputsNotFinite, largest_value
from rskip.tasks.loop_folder import save_whole, write_curve
from rskip.tasks.loop_run import LoopRun
from rskip.vision.data import ImageSet, TrainingBatches
from rskip.vision.data.own_images import OwnImages
from rskip.vision.datasets import DATASETS
from rskip.vision.evaluation import Evaluation, device_name, evaluate
from rskip.vision.model_file import TASK, build_model, model_config, model_name
from rskip.vision.settings import TrainingSettings, learning_rate
from rskip.vision.training.curve import CurvePoint, Meter, TensorBoardCurve
from rskip.vision.training.training_folder import TrainingCheckpoint, TrainingFolder


class TrainingRun(LoopRun[CurvePoint]):
    """The model, its optimiser, and all other state that changes during training; see `LoopRun`.

    compile_error: the reason why the model is not compiled although the settings ask for it.

    :param own: your own images, from which `images` and `test_images` were made; None for a dataset.
    :raises ValueError: the settings don't fit these images or processes.
    """

    files: TrainingFolder

    def __init__(
        self,
        settings: TrainingSettings,
        *,
        images: ImageSet,
        test_images: ImageSet,
        own: OwnImages | None = None,
        files: TrainingFolder,
        seed: int,
        device: torch.device,
        ranks: Ranks,
        observer: Observer | None = None,
    ) -> None:
        super().__init__(
            settings,
            files=files,
            seed=seed,
            device=device,
            device_name=device_name(device),
            ranks=ranks,
            observer=observer,
        )
        self.settings = settings
        self.batches = TrainingBatches(
            images,
            batch_size=settings.batch_size,
            seed=seed,
            device=device,
            flip=settings.flip,
            rank=ranks.rank,
            world_size=ranks.count,
            channels_last=settings.channels_last,
        )
        smallest = len(images) % settings.batch_size or settings.batch_size
        if smallest < ranks.count:
            raise ValueError(
                f"an epoch's last batch has {smallest} images for {ranks.count} processes: choose another batch_size"
            )
        self.test_images = test_images
        self._schedule = settings.in_iterations(self.batches.batches_per_epoch)
        assert self._schedule.iterations is not None
        self.iterations = self._schedule.iterations
        torch.manual_seed(seed)
        self._own = own
        size = None if own is None else own.description.size
        self._config = model_config(settings, len(images.classes), size=size)
        self.model = build_model(self._config)
        if settings.sync_batch_norm and ranks.count > 1:
            nn.SyncBatchNorm.convert_sync_batchnorm(self.model)  # replaces modules in place; only on GPUs (see `train`)
        self.model.to(device).train()
        if settings.channels_last:
            self.model.to(memory_format=torch.channels_last)
        self.compile_error: Exception | None = None
        self._batch_counts = take_batch_counts(self.model)
        self._trained = self._wrapped()
        self.optimiser = torch.optim.SGD(
            parameter_groups(self.model, settings),
            lr=settings.lr,
            momentum=settings.momentum,
            nesterov=settings.nesterov,
        )
        self.meter = Meter(device, ranks)
        self._tensorboard: TensorBoardCurve | None = None
        if settings.compile and ranks.count == 1:
            self._compile()
        self._begin_session()

    def _wrapped(self) -> nn.Module:
        """The model as training calls it: compiled, with averaged gradients."""
        wrapped: nn.Module = self.model
        if self.settings.compile:
            # not dynamic, since there are only two batch sizes: an epoch's last batch is smaller
            wrapped = cast(nn.Module, torch.compile(wrapped, dynamic=False))
        return self._distributed(wrapped)

    def _compile(self) -> None:
        """Compiles the model for each batch size, without changing the training. On an error it stays uncompiled."""
        statistics = {name: buffer.clone() for name, buffer in self.model.named_buffers()}
        last = self.batches.batches_per_epoch - 1
        try:
            for iteration in (0, last) if self.iterations > last else (0,):
                images, labels, _ = self.batches.batch(iteration)
                self._loss(self._trained, images, labels)[1].backward()
        except Exception as error:  # PyTorch's compilers and the programs that they start raise errors of any type
            self.compile_error, self._trained = error, self.model
        self.optimiser.zero_grad()
        for name, buffer in self.model.named_buffers():
            buffer.copy_(statistics[name])

    def learning_rate(self, iteration: int) -> float:
        return learning_rate(self._schedule, iteration)

    def restore(self, checkpoint: TrainingCheckpoint) -> None:
        """Restores the training's state from an earlier session's checkpoint."""
        self._restore(checkpoint, sessions=checkpoint.pieces, point_seconds=checkpoint.meter["seconds"])
        torch.set_rng_state(checkpoint.rng["cpu"])
        if self.device.type == "cuda" and "cuda" in checkpoint.rng:
            torch.cuda.set_rng_state(checkpoint.rng["cuda"], self.device)
        self.meter.load(checkpoint.meter)

    def begin_files(self, *, tensorboard: bool) -> None:
        """Writes run.json and the curve so far, in the first rank only.

        :raises ValueError: TensorBoard was requested but is not installed.
        """
        if not self.ranks.first:
            return
        content = {}
        if self._own is not None:
            content = {"classes": self._own.train.classes, "images": to_plain(self._own.description)}
        self._write_settings(iterations=self.iterations, **content)
        if tensorboard:
            last = self.points[-1].iteration if self.points else 0
            self._tensorboard = TensorBoardCurve(self.files.tensorboard, after=last)

    @property
    def epochs(self) -> int:
        """The number of passes over the training images. The last one may be incomplete."""
        return -(-self.iterations // self.batches.batches_per_epoch)

    @property
    def point_due(self) -> bool:
        """Whether the curve gets a point now, which is at the end of each epoch and of the training."""
        at_end = self.finished or self.iteration % self.batches.batches_per_epoch == 0
        return at_end and self.meter.images > 0

    def _iterate(self) -> None:
        plan = self.batches.plan(self.iteration)
        if self._observer is not None:
            self._observer(
                self.iteration + 1,
                self.model,
                lambda model: self._loss(model, *self.batches.make(plan))[1],
                count=len(plan.rows),
            )
        images, labels = self.batches.make(plan)
        logits, loss = self._loss(self._trained, images, labels)
        self._descend(loss, plan.count)
        if self._batch_counts:  # torchvision's normalisations count batches themselves
            torch._foreach_add_(self._batch_counts, 1)
        self.meter.add(self.iteration, logits, labels, loss)
        self.meter.images += plan.count

    def _loss(self, model: nn.Module, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The logits and the summed loss."""
        bfloat16 = self.settings.precision == "bfloat16"
        with torch.autocast(self.device.type, torch.bfloat16, enabled=bfloat16):
            logits = model(images)
        logits = at_least_float32(logits)
        smoothing = self.settings.label_smoothing
        return logits, F.cross_entropy(logits, labels, reduction="sum", label_smoothing=smoothing)

    def check(self) -> None:
        """:raises Diverged: a loss since the last check, a weight or a running statistic is not finite."""
        bad, largest = torch.stack([self.meter.first_bad().double(), largest_value(self.model).double()]).tolist()
        with self.ranks.together():
            if bad < self.iteration:
                raise self._diverged("the loss", int(bad))
            if not math.isfinite(largest):
                raise self._diverged("a weight or statistic", self.iteration)

    def _diverged(self, what: str, iteration: int) -> Diverged:
        """The error, which suggests what to try."""
        lr, connection = learning_rate(self._schedule, max(0, iteration - 1)), self.settings.connection
        normalised = parse_connection(connection).norm is not None
        first = "" if normalised else "a connection with a normalisation, such as 2rskip+ln, or "
        return Diverged(
            f"{what} is not finite after {iteration:,} iterations (lr {lr:g}, connection {connection}): "
            f"try {first}a lower lr or clip_norm; {self._kept}"
        )

    def _out_of_memory(self) -> ValueError:
        bfloat16 = "" if self.settings.precision == "bfloat16" else ", precision bfloat16"
        images = len(self.batches.plan(self.iteration).rows)
        return ValueError(
            f"not enough memory on {device_name(self.device)} for the {images:,} images of iteration "
            f"{self.iteration + 1:,}: give a smaller batch_size{bfloat16} or another device; {self._kept}"
        )

    def add_point(self) -> CurvePoint:
        """Adds a point to the curve, with a test error if one is due.

        :raises Diverged: the model's outputs for the test images are not finite.
        """
        train_loss, train_error = self.meter.means()
        seconds = time.monotonic() - self._point_began
        epoch = -(-self.iteration // self.batches.batches_per_epoch)
        evaluation = None
        with self.ranks.together():
            if self.ranks.first and (self.finished or epoch % self.settings.evaluate_every == 0):
                evaluation = self._evaluate()
            point = CurvePoint(
                epoch=epoch,
                iteration=self.iteration,
                lr=learning_rate(self._schedule, self.iteration - 1),
                train_loss=train_loss,
                train_error=train_error,
                test_loss=None if evaluation is None else evaluation.loss,
                test_error=None if evaluation is None else evaluation.error,
                images_per_second=self.meter.images / seconds,
                seconds=self.seconds,
            )
            self.points.append(point)
            if self.ranks.first:
                write_curve(self.files.curve, self.points)
            if self._tensorboard is not None:
                self._tensorboard.add(point)
        self.meter.reset()
        self._point_began = time.monotonic()
        return point

    def _evaluate(self) -> Evaluation:
        """Evaluates the iterate on the test images, which stay on the device."""
        self.test_images = self.test_images.to(self.device)
        try:
            return evaluate(
                self.model,
                self.test_images,
                dataset=self._images_name,
                device=self.device,
                precision=self.settings.precision,
            )
        except OutputsNotFinite as error:
            raise self._diverged("the test loss", self.iteration) from error

    def _sums(self) -> Any:
        return {**self.meter.state(), "seconds": time.monotonic() - self._point_began}

    def _checkpoint(self, sums: Any) -> TrainingCheckpoint:
        rng = {"cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            rng["cuda"] = torch.cuda.get_rng_state(self.device)
        sessions = self._sessions()
        return TrainingCheckpoint(
            settings=self.settings.to_dict(),
            seed=self.seed,
            processes=self.ranks.count,
            iteration=self.iteration,
            iterations=self.iterations,
            model=self._weights(),
            optimiser=self._optimiser_state(),
            rng=rng,
            meter=sums,
            curve=list(self.points),
            seconds=sum(session["seconds"] for session in sessions),
            pieces=sessions,
            **self._own_content(),
        )

    def _own_content(self) -> dict[str, Any]:
        """The additional content of the files of a training on your own images."""
        if self._own is None:
            return {}
        return {"config": self._config, "classes": self._own.train.classes, "images": self._own.description}

    @property
    def _images_name(self) -> str:
        return self.settings.dataset if self._own is None else self._own.description.name

    @property
    def name(self) -> str:
        """The name of the model and the images, such as `PreAct-ResNet-20, 2rskip+ln, cifar10`."""
        return f"{model_name(self._config)}, {self._images_name}"

    @property
    def evaluated_on(self) -> str:
        """The name of the images of the curve's test error: "test" or "validation"."""
        return "validation" if self._own is not None and self._own.split == "valid" else "test"

    def finish(self) -> None:
        """Writes the last iterate as model.pt, and as model.safetensors with config.json."""
        with self.ranks.together():
            if self.ranks.first:
                dataset, weights, own = self.settings.dataset, self._weights(), {}
                content = {"config": self._config, "dataset": dataset, "model": weights, "iteration": self.iteration}
                if self._own is not None:
                    own = {"classes": list(self._own.train.classes), "images": to_plain(self._own.description)}
                about = own or {"classes": list(DATASETS[dataset].classes)}
                config = {"task": TASK, "model": self._config, "dataset": dataset, **about}
                self.files.check_lock()
                write_model(self.files.path, Checkpoint(model=weights, config=config))
                save_whole(self.files.model, content | own)
        if self._tensorboard is not None:
            self._tensorboard.close()


def parameter_groups(model: nn.Module, settings: TrainingSettings) -> list[dict[str, Any]]:
    """The optimiser's groups: all parameters, or separately those with and without weight decay.

    With decay="weights" only the weights of the model's convolutions and classifier decay. Gains and biases of
    normalisations, the classifier's bias and the parameters of connections don't.
    """
    if settings.decay == "all":
        return [{"params": list(model.parameters()), "weight_decay": settings.weight_decay}]
    layers = [name for name, module in model.named_modules() if isinstance(module, (nn.Conv2d, nn.Linear))]
    weights = {f"{name}.weight" for name in layers if "connection" not in name.split(".")}
    named = list(model.named_parameters())
    return [
        {"params": [each for name, each in named if name in weights], "weight_decay": settings.weight_decay},
        {"params": [each for name, each in named if name not in weights], "weight_decay": 0.0},
    ]
