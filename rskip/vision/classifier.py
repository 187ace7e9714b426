"""Classifies images with a trained model. N images, K classes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from rskip.files.images import read_image
from rskip.machine.device import usable_device
from rskip.vision.cifar_resnet import SIZE
from rskip.vision.evaluation import evaluation_batch
from rskip.vision.model_file import load_model
from rskip.vision.own_images import ImageDescription
from rskip.vision.transforms import CifarClassification, ImageClassification


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """A classifier's prediction for one image.

    :param name: name of the most probable class.
    :param score: its probability.
    :param scores: probability of every class, the most probable first.
    """

    name: str
    score: float
    scores: Mapping[str, float]


class Classifier(nn.Module):
    """An image model with the names of its classes and its preprocessing of images::

        classifier = Classifier.from_pretrained("runs/flowers")  # trained on your own images
        classifier.classify("rose.jpg")[0].name
        classifier = Classifier.from_pretrained("checkpoints/cifar10_resnet20/preact20_2rskip_ln")
        classifier.classify(Image.open("cat.png", formats=["PNG"]).resize((32, 32)))[0].name

    Called with a batch of normalised images, as `transforms()` makes them, it returns the model's logits.

    :param model: a model in evaluation mode, on its device.
    :param classes: names of the classes, in the order of the logits.
    :param dataset: a name such as "cifar10", which determines mean and standard deviation, or "images".
    :param config: the arguments from which `preact_resnet` or `torchvision_resnet` builds the model.
    :param images: description of your own images that the model was trained on; None for a dataset.
    """

    precisions: ClassVar[tuple[str, ...]] = ("float32", "bfloat16", "float16")

    def __init__(
        self,
        model: nn.Module,
        classes: Sequence[str],
        *,
        dataset: str,
        config: Mapping[str, Any] | None = None,
        images: ImageDescription | None = None,
    ) -> None:
        super().__init__()
        self.model: Any = model
        self.classes = tuple(classes)
        self.dataset = dataset
        self.images = images
        known: Any = config or model.config
        self.config: dict[str, Any] = dict(known)
        self.train(model.training)

    @classmethod
    def from_pretrained(
        cls,
        path: str | os.PathLike[str],
        *,
        precision: str = "float32",
        device: str | torch.device | None = None,
    ) -> Classifier:
        """Loads published weights or the model of a training.

        :param path: model.safetensors with config.json next to it, a training's checkpoint.pt, or the folder of one of
            these.
        :param precision: precision of the computation, one of `precisions`.
        :param device: the model's device (default: the CPU).
        :raises FileNotFoundError: the path holds no model.
        :raises ValueError: a file is damaged, or the precision or device is not possible.
        """
        if precision not in cls.precisions:
            raise ValueError(f"unknown precision {precision!r}: expected one of {', '.join(cls.precisions)}")
        device = usable_device("cpu" if device is None else device)
        model, description = load_model(Path(path))
        if len(description.classes) != (logits := description.config["num_classes"]):
            names = list(description.classes)
            raise ValueError(f"{description.path.parent}: its classes are {names}, expected {logits} names")
        model.to(device, getattr(torch, precision))
        return cls(
            model,
            description.classes,
            dataset=description.dataset,
            config=description.config,
            images=description.images,
        )

    def forward(self, images: Tensor) -> Tensor:
        """Logits of normalised images. Shape: (N, 3, 32, 32), or your own size -> (N, K)."""
        logits: Tensor = self.model(images)
        return logits

    def classify(self, images: Any, *, batch_size: int | None = None) -> list[Prediction]:
        """A prediction for each image, in order.

        :param images: one image or a sequence of images: paths of files, or anything that `transforms()` takes,
            including batches.
        :param batch_size: images per batch; None: `rskip.vision.evaluation.evaluation_batch`.
        :raises FileNotFoundError: a file does not exist.
        :raises ValueError: something is not an image, or an image for a model of CIFAR does not have 32 × 32 pixels.
        """
        each = images if isinstance(images, (list, tuple)) else [images]
        transforms, prepared = self.transforms(), []
        for image in each:
            pixels = transforms(read_image(image) if isinstance(image, (str, os.PathLike)) else image)
            prepared.append(pixels if pixels.dim() == 4 else pixels[None])
        predictions: list[Prediction] = []
        batch_size = batch_size or evaluation_batch(SIZE if self.images is None else self.images.size)
        with torch.inference_mode():
            for batch in torch.cat(prepared).split(batch_size) if prepared else ():
                weight = self.model.fc.weight
                logits = self.model(batch.to(weight.device, weight.dtype))  # (N, K)
                values, order = logits.float().softmax(dim=1).sort(dim=1, descending=True, stable=True)
                for row, numbers in zip(values.tolist(), order.tolist(), strict=True):
                    scores = {self.classes[number]: value for number, value in zip(numbers, row, strict=True)}
                    predictions.append(Prediction(name=self.classes[numbers[0]], score=row[0], scores=scores))
        return predictions

    def transforms(self) -> CifarClassification | ImageClassification:
        """The preprocessing of images, in float32."""
        if self.images is None:
            return CifarClassification(self.dataset)
        images = self.images
        return ImageClassification(size=images.size, stored_size=images.stored_size, mean=images.mean, std=images.std)
