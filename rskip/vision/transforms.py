"""Turns images into a model's input: RGB of its size, normalised per channel. It does not need torchvision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from rskip.extras import extra
from rskip.files.images import read_image
from rskip.settings.errors import did_you_mean
from rskip.vision.cifar_resnet import SIZE
from rskip.vision.data import centre
from rskip.vision.datasets import DATASETS

with extra("vision"):
    import numpy as np

if TYPE_CHECKING:
    from PIL.Image import Image


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
        pixels = image
        if not isinstance(image, Tensor):
            array = image if isinstance(image, np.ndarray) else np.array(read_image(image, least_side=1))
            if array.ndim not in (3, 4) or array.shape[-1] != 3:
                of_batches = f"(N, {SIZE}, {SIZE}, 3)"
                raise ValueError(f"an array of shape {array.shape}: expected ({SIZE}, {SIZE}, 3) or {of_batches}")
            pixels = torch.from_numpy(np.ascontiguousarray(array)).movedim(-1, -3)
        if pixels.dim() not in (3, 4) or pixels.shape[-3:] != (3, SIZE, SIZE):
            last = pixels.dim() > 2 and pixels.shape[-1] == 3
            raise ValueError(
                f"an image of shape {tuple(pixels.shape)}: expected (3, {SIZE}, {SIZE}) or (N, 3, {SIZE}, {SIZE}); "
                + ("move the channels to the front" if last else f"resize it to {SIZE} x {SIZE} first")
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

    The middle square of the image is resized to `stored_size`. The model sees the `size` by `size` pixels in its
    centre.

    :param size: pixels per side of the model's input.
    :param stored_size: pixels per side that images are resized to.
    :param mean: mean of each channel, with values in [0, 1].
    :param std: standard deviation of each channel, likewise.
    """

    def __init__(self, *, size: int, stored_size: int, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.size, self.stored_size = size, stored_size
        self.mean, self.std = tuple(mean), tuple(std)

    def forward(self, image: Any) -> Tensor:
        """The normalised image in float32. Shape: (3, size, size), or (N, 3, size, size) for a batch.

        :param image: a PIL image, a tensor (3, H, W) or (N, 3, H, W), or a NumPy array (H, W, 3) or (N, H, W, 3), of
            uint8. A PIL image is rotated by its EXIF data and converted to RGB. Transparent parts become white.
        :raises ValueError: `image` is something else.
        """
        from PIL import Image

        if isinstance(image, (Tensor, np.ndarray)):
            pixels: Any = image
            if isinstance(image, Tensor) and image.dim() > 2:
                pixels = image.movedim(-3, -1).cpu().numpy()
            if pixels.ndim not in (3, 4) or pixels.shape[-1] != 3 or str(pixels.dtype) != "uint8":
                raise ValueError(
                    f"an image of {image.dtype} and shape {tuple(image.shape)}: expected uint8 and a tensor (3, "
                    "height, width), an array (height, width, 3), or a batch of them"
                )
            if pixels.ndim == 4:
                return torch.stack([self(each) for each in pixels])
            image = Image.fromarray(np.ascontiguousarray(pixels))
        resized = torch.from_numpy(np.array(square(read_image(image, least_side=1), self.stored_size)))
        return _normalised(centre(resized.permute(2, 0, 1), self.size), self.mean, self.std)

    def extra_repr(self) -> str:
        return f"size={self.size}, stored_size={self.stored_size}, mean={self.mean}, std={self.std}"


def _normalised(pixels: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """(pixels - mean) / std for each channel in float32. The pixels are uint8, or floats in [0, 1]."""
    values = pixels.to(torch.float32) / 255 if pixels.dtype == torch.uint8 else pixels.to(torch.float32)
    means, stds = (torch.tensor(numbers, device=values.device).view(3, 1, 1) for numbers in (mean, std))
    return (values - means) / stds


def square(image: Image, side: int) -> Image:
    """The image's middle square, resized to `side` by `side` pixels, bilinear with antialiasing."""
    from PIL import Image as Images
    from PIL import ImageOps

    return image if image.size == (side, side) else ImageOps.fit(image, (side, side), Images.Resampling.BILINEAR)
