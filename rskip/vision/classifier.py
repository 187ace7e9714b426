"""Classifies images with a trained model, and turns images into its input. N images, K classes, H, W."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from rskip.extras import extra
from rskip.files.images import read_image
from rskip.machine.device import usable_device
from rskip.settings.errors import did_you_mean
from rskip.vision.cifar_resnet import SIZE
from rskip.vision.data import centre
from rskip.vision.datasets import DATASETS
from rskip.vision.evaluation import evaluation_batch
from rskip.vision.model_file import load_model
from rskip.vision.own_images import ImageDescription, square

with extra("vision"):
    import numpy as np


class CifarClassification(nn.Module):
    """Turns an image or a batch into a model's input: values in [0, 1], minus the dataset's mean, divided by its std.

    It works like torchvision's presets. `Classifier.transforms()` returns one.

    :param dataset: a name of DATASETS, such as "cifar10", which determines mean and standard deviation.
    :raises ValueError: the dataset is unknown.
    """

    def __init__(self, dataset: str = "cifar10") -> None:
        super().__init__()
        if dataset not in tuple(DATASETS):
            known = " and ".join(DATASETS)
            raise ValueError(f"unknown dataset {dataset!r}{did_you_mean(dataset, DATASETS)}; known: {known}")
        self.dataset = dataset
        self.mean = DATASETS[dataset].mean
        self.std = DATASETS[dataset].std

    def forward(self, image: Any) -> Tensor:
        """The normalised image in float32. Shape: (3, 32, 32) or (N, 3, 32, 32), like `image`.

        :param image: a PIL image, a tensor (3, 32, 32) or (N, 3, 32, 32), or a NumPy array (32, 32, 3) or
            (N, 32, 32, 3). Tensors and arrays are uint8, or floating point in [0, 1]. A PIL image is rotated by its
            EXIF data and converted to RGB. Transparent parts become white.
        :raises ValueError: `image` is something else.
        """
        pixels = _pixels(image)
        if pixels.dim() not in (3, 4) or pixels.shape[-3:] != (3, SIZE, SIZE):
            tensors, arrays = f"(3, {SIZE}, {SIZE}) or (N, 3, {SIZE}, {SIZE})", f"({SIZE}, {SIZE}, 3)"
            raise ValueError(
                f"an image of shape {tuple(getattr(image, 'shape', pixels.shape))}: expected {tensors}, or an array "
                f"{arrays}; resize it to {SIZE} x {SIZE}, or move its channels"
            )
        in_range = pixels.is_floating_point() and ((pixels >= 0) & (pixels <= 1)).all()  # NaN is not
        if pixels.dtype != torch.uint8 and not in_range:
            raise ValueError(
                f"an image of {pixels.dtype}: expected torch.uint8, or floating point in [0, 1]; pass an image that is "
                "already normalised to `classifier(batch)`"
            )
        return _normalised(pixels, self.mean, self.std)

    def extra_repr(self) -> str:
        return f"dataset={self.dataset!r}, mean={self.mean}, std={self.std}"


class ImageClassification(nn.Module):
    """Turns an image of any size into the input of a model that was trained on your own images.

    The middle square of the image is resized to `stored_size` pixels per side. The model sees the `size` by `size`
    pixels in its centre, minus the mean, divided by the standard deviation.

    :param images: the description of the training images.
    """

    def __init__(self, images: ImageDescription) -> None:
        super().__init__()
        self.size, self.stored_size, self.mean, self.std = images.size, images.stored_size, images.mean, images.std

    def forward(self, image: Any) -> Tensor:
        """The normalised image in float32. Shape: (3, size, size), or (N, 3, size, size) for a batch.

        :param image: a PIL image, a tensor (3, H, W) or (N, 3, H, W), or a NumPy array (H, W, 3) or (N, H, W, 3), of
            uint8. A PIL image is rotated by its EXIF data and converted to RGB. Transparent parts become white.
        :raises ValueError: `image` is something else.
        """
        from PIL import Image

        pixels = _pixels(image)
        if pixels.dim() not in (3, 4) or pixels.shape[-3] != 3 or pixels.dtype != torch.uint8:
            raise ValueError(
                f"an image of {image.dtype} and shape {tuple(image.shape)}: expected uint8 and a tensor (3, height, "
                "width), an array (height, width, 3), or a batch of them"
            )
        if pixels.dim() == 4:
            found = [self(each) for each in pixels]
            return torch.stack(found) if found else torch.empty(0, 3, self.size, self.size)
        array = np.ascontiguousarray(pixels.movedim(-3, -1).cpu().numpy())
        resized = torch.from_numpy(np.array(square(Image.fromarray(array), self.stored_size)))
        return _normalised(centre(resized.permute(2, 0, 1), self.size), self.mean, self.std)

    def extra_repr(self) -> str:
        return f"size={self.size}, stored_size={self.stored_size}, mean={self.mean}, std={self.std}"


def _pixels(image: Any) -> Tensor:
    """The tensor itself, or the pixels of a PIL image or an array with its channels moved to the front."""
    if isinstance(image, Tensor):
        return image
    array = image if isinstance(image, np.ndarray) else np.array(read_image(image, least_side=1))
    pixels = torch.from_numpy(np.ascontiguousarray(array))
    return pixels.movedim(-1, -3) if pixels.dim() > 2 else pixels


def _normalised(pixels: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """(pixels - mean) / std for each channel in float32. The pixels are uint8, or floats in [0, 1]."""
    values = pixels.to(torch.float32) / 255 if pixels.dtype == torch.uint8 else pixels.to(torch.float32)
    means, stds = (torch.tensor(numbers, device=values.device).view(3, 1, 1) for numbers in (mean, std))
    return (values - means) / stds


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
    :param config: the arguments from which `preact_resnet`, `vision_transformer` or `torchvision_resnet` builds the
        model.
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
        each = map(self.transforms(), images if isinstance(images, (list, tuple)) else [images])
        prepared = (row for pixels in each for row in (pixels if pixels.dim() == 4 else [pixels]))
        predictions: list[Prediction] = []
        batch_size = batch_size or evaluation_batch(SIZE if self.images is None else self.images.size)
        with torch.inference_mode():
            while batch := list(islice(prepared, batch_size)):
                weight = next(self.model.parameters())
                logits = self.model(torch.stack(batch).to(weight.device, weight.dtype))  # (N, K)
                values, order = logits.float().softmax(dim=1).sort(dim=1, descending=True, stable=True)
                for row, numbers in zip(values.tolist(), order.tolist(), strict=True):
                    scores = {self.classes[number]: value for number, value in zip(numbers, row, strict=True)}
                    predictions.append(Prediction(name=self.classes[numbers[0]], score=row[0], scores=scores))
        return predictions

    def transforms(self) -> CifarClassification | ImageClassification:
        """The preprocessing of images, in float32."""
        return CifarClassification(self.dataset) if self.images is None else ImageClassification(self.images)
