"""Holds the state of a training and does its steps: iterations, checks, points of the curve, checkpoints."""

from __future__ import annotations

import json
import math
import time
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from rskip.checkpoint import untrained_language_model
from rskip.connections.norms import at_least_float32
from rskip.files.torch_file import weights_difference
from rskip.files.whole import atomic_file, naming
from rskip.language_modeling.data import TextData
from rskip.language_modeling.evaluation import OutputsNotFinite, text_loss
from rskip.language_modeling.model_file import write_language_model
from rskip.language_modeling.models import model_config
from rskip.language_modeling.settings import TrainingSettings, learning_rate
from rskip.language_modeling.training.batches import TrainingBatches, iteration_seed
from rskip.language_modeling.training.checkpoint import (
    TrainingCheckpoint,
    check_same_training,
    write_training_checkpoint,
)
from rskip.language_modeling.training.curve import CurvePoint, write_curve
from rskip.machine.ranks import Ranks
from rskip.machine.torch_errors import out_of_memory
from rskip.tasks.loop import Diverged, Observer, largest_value
from rskip.tasks.loop_folder import LoopFolder, Session

CHECK_EVERY = 100  # iterations between two checks of the loss, since a check waits for the GPU


class TrainingRun:
    """The model, its optimiser, and all other state that changes during training.

    :param files: the output folder.
    :param seed: random seed for the initial weights, the batches and dropout.
    :param observer: probes the training; None: no probe.
    :raises ValueError: the settings don't fit this text or these processes.
    """

    def __init__(
        self,
        settings: TrainingSettings,
        *,
        data: TextData,
        files: LoopFolder,
        seed: int,
        device: torch.device,
        ranks: Ranks,
        observer: Observer | None = None,
    ) -> None:
        if settings.batch_size < ranks.count:
            raise ValueError(f"batch_size is {settings.batch_size}: expected at least one sequence for each process")
        self.settings, self.data, self.files, self.seed = settings, data, files, seed
        self.device, self.ranks, self._observer = device, ranks, observer
        self.batches = TrainingBatches(
            data.splits["train"],
            batch_size=settings.batch_size,
            context=settings.context,
            seed=seed,
            device=device,
            ranks=ranks,
        )
        torch.manual_seed(seed)
        self._config = model_config(settings, len(data.tokens.dictionary))
        self.model = untrained_language_model(self._config).to(device).train()
        self._trained: nn.Module = self.model
        if ranks.count > 1:
            gpu = [device] if device.type == "cuda" else None
            self._trained = DistributedDataParallel(self.model, device_ids=gpu, gradient_as_bucket_view=True)
        self.optimiser = torch.optim.AdamW(
            parameter_groups(self.model, settings),
            lr=settings.lr,
            betas=(settings.beta1, settings.beta2),
            fused=True,
        )
        self.iteration = 0
        self.points: list[CurvePoint] = []
        self._saved = 0  # the iteration of the last checkpoint
        self._loss = torch.zeros((), dtype=torch.float64, device=device)  # of this rank, since the last point
        self._tokens = 0  # of all ranks, since then
        self._earlier_sessions: list[Session] = []
        self._session: dict[str, Any] = {"from": 0, "device": device.type, "torch": str(torch.__version__)}
        self._session_began = self._point_began = time.monotonic()

    @property
    def _identity(self) -> dict[str, Any]:
        """What a resumed training must have in common with its checkpoint."""
        text = self.data.described["files_sha256"]
        return {**self.settings.to_dict(), "seed": self.seed, "processes": self.ranks.count, "text": text}

    def restore(self, checkpoint: TrainingCheckpoint) -> None:
        """Restores the training's state from an earlier session's checkpoint.

        :raises ValueError: the checkpoint doesn't belong to this training.
        """
        check_same_training(self.files.checkpoint, checkpoint, self._identity)
        if difference := self._difference(checkpoint):
            raise ValueError(
                f"{self.files.checkpoint} doesn't fit its own settings ({difference}): it is damaged or of another "
                "version; move it away to start again"
            )
        self.model.load_state_dict(checkpoint.model)
        groups = self.optimiser.state_dict()["param_groups"]  # the settings, not the checkpoint, determine the update
        self.optimiser.load_state_dict({"state": checkpoint.optimiser["state"], "param_groups": groups})
        if self.ranks.first:
            self._loss.fill_(checkpoint.loss)
        self._tokens = checkpoint.tokens
        self._point_began = time.monotonic() - checkpoint.seconds
        self.points = list(checkpoint.curve)
        self.iteration = self._saved = checkpoint.iteration
        self._earlier_sessions = checkpoint.sessions
        self._session["from"] = checkpoint.iteration

    def _difference(self, checkpoint: TrainingCheckpoint) -> str | None:
        """How a checkpoint differs from this training's; None if no difference is found."""
        if checkpoint.iteration > self.settings.iterations:
            return f"{checkpoint.iteration:,} iterations are done, expected {self.settings.iterations:,} at most"
        if difference := weights_difference(self.model.state_dict(), checkpoint.model, saved=True):
            return difference
        names = {parameter: name for name, parameter in self.model.named_parameters()}
        trained = [names[each] for group in self.optimiser.param_groups for each in group["params"]]
        groups = [group["params"] for group in self.optimiser.state_dict()["param_groups"]]
        if [group["params"] for group in checkpoint.optimiser["param_groups"]] != groups:
            return "the optimiser has other parameters"
        own = dict(self.model.named_parameters())
        for moment in ("exp_avg", "exp_avg_sq"):
            given = {trained[number]: each[moment] for number, each in checkpoint.optimiser["state"].items()}
            # a parameter without gradient has no moments
            if difference := weights_difference({name: own[name] for name in given}, given, saved=True):
                return f"{moment}: {difference}"
        return None

    def begin_files(self) -> None:
        """Writes run.json and the curve so far, in the first rank only.

        :raises OSError: the disk is full, or there is no permission.
        """
        if not self.ranks.first:
            return
        content = {
            "settings": self.settings.to_dict(),
            "seed": self.seed,
            "processes": self.ranks.count,
            "parameters": self.parameters,
            "text": self.data.described,
        }
        path = self.files.settings
        with naming(path, consequence="free some space and repeat the command"), atomic_file(path) as temporary:
            temporary.write_text(json.dumps(content, indent=2) + "\n")
        write_curve(self.files.curve, self.points)

    @property
    def parameters(self) -> int:
        """The number of parameters."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    @property
    def name(self) -> str:
        """The name of the model and the text."""
        settings = self.settings
        return f"{settings.layers} layers, {settings.features} features, {settings.connection}, {self.data.name}"

    @property
    def finished(self) -> bool:
        """Whether all iterations are done."""
        return self.iteration >= self.settings.iterations

    @property
    def point_due(self) -> bool:
        """Whether the curve gets a point now."""
        return self._tokens > 0 and (self.finished or self.iteration % self.settings.evaluate_every == 0)

    @property
    def check_due(self) -> bool:
        """Whether to check the loss now."""
        return self.iteration % CHECK_EVERY == 0

    @property
    def save_due(self) -> bool:
        """Whether to save a checkpoint now. One is always saved before a point, since its evaluation may take long."""
        return self.iteration > self._saved and (self.point_due or self.iteration % self.settings.save_every == 0)

    def step(self) -> None:
        """Does one iteration, with the gradient of the mean loss over the batch of all ranks.

        It does not wait for the device.

        :raises ValueError: the device has not enough memory.
        """
        for group in self.optimiser.param_groups:
            group["lr"] = learning_rate(self.settings, self.iteration)
        try:
            inputs, targets = self.batches.batch(self.iteration)
            if self._observer is not None:
                self._observer(
                    self.iteration + 1,
                    self.model,
                    lambda model: self._sum_of_losses(model, inputs, targets),
                    images=targets.numel(),
                )
            self._update(inputs, targets)
        except (RuntimeError, MemoryError) as error:
            if out_of_memory(error):
                raise ValueError(
                    f"not enough memory for {self.settings.batch_size:,} sequences of {self.settings.context:,} "
                    f"tokens: give a smaller batch_size or context; {self._kept}"
                ) from error
            raise
        self.iteration += 1

    def _update(self, inputs: Tensor, targets: Tensor) -> None:
        """The part of an iteration that runs on the device."""
        # set for each iteration, so that a resumed training draws the same dropout
        torch.manual_seed(iteration_seed(self.seed, self.iteration, 1 + self.ranks.rank))
        count = self.settings.batch_size * self.settings.context
        loss = self._sum_of_losses(self._trained, inputs, targets)
        self.optimiser.zero_grad()
        # DistributedDataParallel divides the sum over ranks by their number
        (loss * (self.ranks.count / count)).backward()
        if self.settings.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip_norm)
        self.optimiser.step()
        self._loss += loss.detach()
        self._tokens += count

    def _sum_of_losses(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        bfloat16 = self.settings.precision == "bfloat16"
        with torch.autocast(self.device.type, torch.bfloat16, enabled=bfloat16):
            logits = model(inputs)
        return F.cross_entropy(at_least_float32(logits).flatten(0, 1), targets.flatten(), reduction="sum")

    def check(self) -> None:
        """:raises Diverged: a loss since the last point, or a weight, is not finite."""
        loss, largest = torch.stack([self.ranks.sum(self._loss), largest_value(self.model).double()]).tolist()
        with self.ranks.together():
            if not math.isfinite(loss):
                raise self._diverged("the loss")
            if not math.isfinite(largest):
                raise self._diverged("a weight")

    def _diverged(self, what: str) -> Diverged:
        """The error, which suggests what to try."""
        lr, connection = learning_rate(self.settings, max(0, self.iteration - 1)), self.settings.connection
        return Diverged(
            f"{what} is not finite after {self.iteration:,} iterations (lr {lr:g}, connection {connection}): "
            f"try a lower lr, a longer warm-up or a lower clip_norm; {self._kept}"
        )

    @property
    def _kept(self) -> str:
        return f"{self.files.checkpoint} holds iteration {self._saved:,}" if self._saved else "no checkpoint yet"

    def add_point(self) -> CurvePoint | None:
        """Adds a point to the curve, in the first rank only.

        :raises Diverged: the model's outputs for the validation text are not finite.
        """
        train_loss = float(self.ranks.sum(self._loss)) / self._tokens
        seconds = time.monotonic() - self._point_began
        point = None
        with self.ranks.together():
            if self.ranks.first:
                point = CurvePoint(
                    iteration=self.iteration,
                    lr=learning_rate(self.settings, self.iteration - 1),
                    train_loss=train_loss,
                    valid_loss=self._evaluate(),
                    tokens_per_second=self._tokens / seconds,
                    seconds=self.seconds,
                )
                self.points.append(point)
                write_curve(self.files.curve, self.points)
        self._loss.zero_()
        self._tokens = 0
        self._point_began = time.monotonic()
        return point

    def _evaluate(self) -> float:
        try:
            return text_loss(
                self.model,
                self.data.splits["valid"],
                context=self.settings.context,
                start=self.data.tokens.dictionary.eos_index,
                precision=self.settings.precision,
            ).loss
        except OutputsNotFinite as error:
            raise self._diverged("the validation loss") from error

    @property
    def seconds(self) -> float:
        """Duration of all sessions so far."""
        return sum(session["seconds"] for session in self._sessions())

    def _sessions(self) -> list[Session]:
        session: Any = {**self._session, "seconds": time.monotonic() - self._session_began}
        return [*self._earlier_sessions, session]

    def save(self) -> None:
        """Writes the checkpoint.

        :raises Diverged: see `check`. Then nothing is written.
        :raises OSError: the disk is full. The earlier checkpoint stays.
        """
        self.check()
        loss = float(self.ranks.sum(self._loss))
        with self.ranks.together():
            if self.ranks.first:
                identity = self._identity
                optimiser: Any = self.optimiser.state_dict()
                moments: Any = {
                    number: {name: _on_cpu(value) for name, value in each.items()}
                    for number, each in optimiser["state"].items()
                }
                checkpoint = TrainingCheckpoint(
                    settings=self.settings.to_dict(),
                    seed=self.seed,
                    processes=self.ranks.count,
                    text=identity["text"],
                    iteration=self.iteration,
                    model=self._weights(),
                    optimiser={"state": moments, "param_groups": optimiser["param_groups"]},
                    loss=loss,
                    tokens=self._tokens,
                    seconds=time.monotonic() - self._point_began,
                    curve=list(self.points),
                    sessions=self._sessions(),
                )
                self.files.check_lock()
                write_training_checkpoint(self.files.checkpoint, checkpoint)
        self._saved = self.iteration

    def _weights(self) -> dict[str, Tensor]:
        return {name: _on_cpu(tensor).contiguous() for name, tensor in self.model.state_dict().items()}

    def finish(self) -> None:
        """Writes the last iterate as a folder that `rskip.load` reads: model.safetensors, config.json, the tokens.

        :raises OSError: the disk is full.
        """
        with self.ranks.together():
            if self.ranks.first:
                self.files.check_lock()
                with naming(self.files.path, consequence="free some space and repeat the command"):
                    write_language_model(
                        self.files.path, self._config, self._weights(), tokens=self.data.tokens, corpus=self.data.name
                    )


def parameter_groups(model: nn.Module, settings: TrainingSettings) -> list[dict[str, Any]]:
    """The optimiser's groups: parameters of two or more dimensions decay, vectors and scalars don't."""
    parameters = list(model.parameters())
    return [
        {"params": [each for each in parameters if each.dim() >= 2], "weight_decay": settings.weight_decay},
        {"params": [each for each in parameters if each.dim() < 2], "weight_decay": 0.0},
    ]


def _on_cpu(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu()
