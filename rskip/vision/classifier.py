"""Images in, classes and scores out. N images, K classes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from rskip.checkpoint.files import CONFIG
from rskip.machine.device import usable_device
from rskip.vision.cifar_resnet import PreActResNet
from rskip.vision.model_file import load_model
from rskip.vision.transforms import CifarClassification


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What a classifier takes an image for.

    :param name: of the most probable class.
    :param score: its probability.
    :param scores: every class's probability, the most probable first.
    """

    name: str
    score: float
    scores: Mapping[str, float]


class Classifier:
    """An image model with its classes' names and with what makes an image its input::

        classifier = Classifier.from_pretrained("checkpoints/cifar10_fast/preact20_2rskip_ln")
        classifier.classify(Image.open("cat.png", formats=["PNG"]).resize((32, 32)))[0].name

    Called on a batch of normalised images (`transforms()` makes them), it gives the model's logits.

    :param model: on the device where it is to run, in evaluation mode.
    :param classes: names of its logits.
    :param dataset: "cifar10" or "cifar100": whose mean and standard deviation images are normalised by.
    """

    precisions: ClassVar[tuple[str, ...]] = ("float32", "bfloat16", "float16")

    def __init__(self, model: PreActResNet, classes: Sequence[str], *, dataset: str) -> None:
        self.model = model
        self.classes = tuple(classes)
        self.dataset = dataset

    @classmethod
    def from_pretrained(
        cls,
        path: str | os.PathLike[str],
        *,
        precision: str = "float32",
        device: str | torch.device | None = None,
    ) -> Classifier:
        """The classifier of published weights, or of a training.

        :param path: model.safetensors with config.json beside it, a training's model.pt or checkpoint.pt, or the folder
            of one.
        :param precision: what it computes in, one of `precisions`.
        :param device: default: the CPU.
        :raises FileNotFoundError: no model there.
        :raises ValueError: a damaged file, an unknown precision, no such device.
        """
        if precision not in cls.precisions:
            raise ValueError(f"unknown precision {precision!r}: expected one of {', '.join(cls.precisions)}")
        device = usable_device("cpu" if device is None else device)
        model, description = load_model(Path(path))
        classes, logits = description.classes, description.config["num_classes"]
        if classes is None or len(classes) != logits:
            file = description.path
            if file.suffix == ".safetensors":
                file = file.with_name(CONFIG)
            shown = None if classes is None else list(classes)
            raise ValueError(f"{file} is damaged: its classes are {shown}, expected {logits} names")
        model.to(device, getattr(torch, precision))
        return cls(model, classes, dataset=description.dataset)

    def __call__(self, images: Tensor) -> Tensor:
        """Logits of normalised images, as `model` gives them. Shape: (N, 3, 32, 32) -> (N, K)."""
        return self.model(images)

    def classify(self, images: Any, *, batch_size: int = 500) -> list[Prediction]:
        """A prediction for each image, in their order.

        :param images: one image or a sequence of them, of any kind that `CifarClassification` takes, batches too.
        :param batch_size: images at a time.
        :raises ValueError: something that is no image, or one of another size than 32 × 32 pixels.
        """
        each = images if isinstance(images, (list, tuple)) else [images]
        prepared = [self._prepared(image) for image in each]
        predictions: list[Prediction] = []
        with torch.inference_mode():
            for batch in torch.cat(prepared).split(batch_size) if prepared else ():
                weight = self.model.fc.weight
                logits = self.model(batch.to(weight.device, weight.dtype))  # (N, K)
                predictions.extend(self._predictions(logits.float().softmax(dim=1)))
        return predictions

    def _prepared(self, image: Any) -> Tensor:
        """Shape: (N, 3, 32, 32)."""
        pixels = self.transforms()(image)
        return pixels if pixels.dim() == 4 else pixels[None]

    def _predictions(self, probabilities: Tensor) -> Iterator[Prediction]:
        """Of probabilities (N, K)."""
        values, order = probabilities.sort(dim=1, descending=True, stable=True)
        for row, numbers in zip(values.tolist(), order.tolist(), strict=True):
            scores = {self.classes[number]: value for number, value in zip(numbers, row, strict=True)}
            yield Prediction(name=self.classes[numbers[0]], score=row[0], scores=scores)

    def transforms(self) -> CifarClassification:
        """What makes an image the model's input, in float32."""
        return CifarClassification(self.dataset)

    @property
    def config(self) -> dict[str, Any]:
        """What `preact_resnet` builds the model from."""
        return self.model.config

    @property
    def training(self) -> bool:
        """Whether the model is in training mode."""
        return self.model.training

    def to(self, *args: Any, **options: Any) -> Classifier:
        """Moves or converts the model, as `nn.Module.to` does."""
        self.model.to(*args, **options)
        return self

    def eval(self) -> Classifier:
        """Puts the model in evaluation mode, where `from_pretrained` leaves it."""
        self.model.eval()
        return self

    def parameters(self) -> Iterator[nn.Parameter]:
        """The model's parameters."""
        return self.model.parameters()

    def state_dict(self) -> dict[str, Tensor]:
        """The model's tensors by name."""
        return self.model.state_dict()
