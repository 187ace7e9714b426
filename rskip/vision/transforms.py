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
        pixels = image if isinstance(image, Tensor) else _read(image)
        if pixels.dim() not in (3, 4) or pixels.shape[-3:] != (3, SIZE, SIZE):
            last = pixels.dim() > 2 and pixels.shape[-1] == 3
            raise ValueError(
                f"an image of shape {tuple(pixels.shape)}: expected (3, {SIZE}, {SIZE}) or (N, 3, {SIZE}, {SIZE}); "
                + ("move the channels to the front" if last else f"resize it to {SIZE} x {SIZE} first")
            )
        if pixels.dtype == torch.uint8:
            pixels = pixels.to(torch.float32) / 255
        elif not pixels.is_floating_point() or not ((pixels >= 0) & (pixels <= 1)).all():  # NaN too
            raise ValueError(
                f"an image of {pixels.dtype}: expected torch.uint8, or floating point in [0, 1]; pass an image that is "
                "already normalised to `classifier(batch)`"
            )
        values = pixels.to(torch.float32)
        mean, std = (torch.tensor(numbers, device=values.device).view(3, 1, 1) for numbers in (self.mean, self.std))
        return (values - mean) / std

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
        if isinstance(image, (Tensor, np.ndarray)):
            return self._of_pixels(image)
        return self._normalised(torch.from_numpy(np.array(square(read_image(image, least_side=1), self.stored_size))))

    def _of_pixels(self, image: Tensor | np.ndarray) -> Tensor:
        from PIL import Image

        pixels = image.movedim(-3, -1).cpu().numpy() if isinstance(image, Tensor) and image.dim() > 2 else image
        if pixels.ndim not in (3, 4) or pixels.shape[-1] != 3 or str(pixels.dtype) != "uint8":
            raise ValueError(
                f"an image of {image.dtype} and shape {tuple(image.shape)}: expected uint8 and a tensor (3, height, "
                "width), an array (height, width, 3), or a batch of them"
            )
        if pixels.ndim == 4:
            return torch.stack([self._of_pixels(each) for each in np.asarray(pixels)])
        return self(Image.fromarray(np.ascontiguousarray(pixels)))

    def _normalised(self, pixels: Tensor) -> Tensor:
        """Shape: (stored_size, stored_size, 3) -> (3, size, size)."""
        begin = -(-(self.stored_size - self.size) // 2)
        part = slice(begin, begin + self.size)
        values = pixels.permute(2, 0, 1)[:, part, part].to(torch.float32) / 255
        mean, std = (torch.tensor(numbers).view(3, 1, 1) for numbers in (self.mean, self.std))
        return (values - mean) / std

    def extra_repr(self) -> str:
        return f"size={self.size}, stored_size={self.stored_size}, mean={self.mean}, std={self.std}"


def square(image: Image, side: int) -> Image:
    """The image's middle square, resized to `side` by `side` pixels, bilinear with antialiasing."""
    from PIL import Image as Images
    from PIL import ImageOps

    return image if image.size == (side, side) else ImageOps.fit(image, (side, side), Images.Resampling.BILINEAR)


def _read(image: Any) -> Tensor:
    """The pixels of a PIL image or an array, channels first. Shape: (3, H, W), or (N, 3, H, W) for arrays."""
    if not isinstance(image, np.ndarray):
        if not hasattr(image, "convert"):
            raise ValueError(f"a {type(image).__name__} is not an image: expected a PIL image, a tensor or an array")
        image = np.array(read_image(image, least_side=1))
    if image.ndim not in (3, 4) or image.shape[-1] != 3:
        raise ValueError(f"an array of shape {image.shape}: expected ({SIZE}, {SIZE}, 3) or (N, {SIZE}, {SIZE}, 3)")
    return torch.from_numpy(np.ascontiguousarray(image)).movedim(-1, -3)  # (..., H, W, 3) -> (..., 3, H, W)
