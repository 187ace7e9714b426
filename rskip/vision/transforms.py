"""What a model of CIFAR images expects: 32 × 32 RGB, normalised channel by channel. Needs no torchvision."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rskip.settings.nearest import did_you_mean

SIZE = 32  # pixels, both ways

# Over all pixels of the 50,000 training images, of values in [0, 1].
# CIFAR-10: a test computes them. CIFAR-100: as two public computations have them (gist nzw0301/b94b509b5b0f and
# Rapid-INR's mean_std.py); fb.resnet.torch rounds to 129.3 124.1 112.4 and 68.2 65.4 70.4 of 255.
MEAN = {"cifar10": (0.4914, 0.4822, 0.4465), "cifar100": (0.5071, 0.4865, 0.4409)}
STD = {"cifar10": (0.2470, 0.2435, 0.2616), "cifar100": (0.2673, 0.2564, 0.2762)}


class CifarClassification(nn.Module):
    """From an image or a batch of them to a model's input: values in [0, 1], minus MEAN, over STD.

    In the manner of torchvision's presets, so `weights.transforms()` gives one.

    :param dataset: "cifar10" or "cifar100": whose mean and standard deviation.
    :raises ValueError: for another dataset.
    """

    def __init__(self, dataset: str = "cifar10") -> None:
        super().__init__()
        if dataset not in MEAN:
            known = " and ".join(MEAN)
            raise ValueError(f"unknown dataset {dataset!r}{did_you_mean(dataset, MEAN)}; known: {known}")
        self.dataset = dataset
        self.mean = MEAN[dataset]
        self.std = STD[dataset]

    def forward(self, image: Any) -> Tensor:
        """The normalised image in float32. Shape: (3, 32, 32) or (N, 3, 32, 32), as `image`.

        :param image: a PIL image (converted to RGB), or a tensor (3, 32, 32) or (N, 3, 32, 32), uint8 or of
            floating point in [0, 1].
        :raises ValueError: for anything else.
        """
        pixels = image if isinstance(image, Tensor) else _read(image)
        if pixels.dim() not in (3, 4) or pixels.shape[-3:] != (3, SIZE, SIZE):
            last = pixels.dim() > 2 and pixels.shape[-1] == 3
            raise ValueError(
                f"an image of shape {tuple(pixels.shape)}: expected (3, {SIZE}, {SIZE}) or (N, 3, {SIZE}, {SIZE}); "
                + ("bring the channels to the front" if last else f"resize it to {SIZE} x {SIZE} first")
            )
        if pixels.dtype == torch.uint8:
            pixels = pixels.to(torch.float32) / 255
        elif not pixels.is_floating_point():
            raise ValueError(f"an image of {pixels.dtype}: expected torch.uint8, or floating point in [0, 1]")
        values = pixels.to(torch.float32)
        mean, std = (torch.tensor(numbers, device=values.device).view(3, 1, 1) for numbers in (self.mean, self.std))
        return (values - mean) / std

    def describe(self) -> str:
        """What it accepts and does, in words."""
        return (
            f"Accepts PIL images and tensors (3, {SIZE}, {SIZE}) or (N, 3, {SIZE}, {SIZE}), of uint8 or of floating "
            f"point in [0, 1]. Values are brought to [0, 1] and normalised with mean={self.mean} and std={self.std} "
            f"({self.dataset})."
        )

    def extra_repr(self) -> str:
        return f"dataset={self.dataset!r}, mean={self.mean}, std={self.std}"


def _read(image: Any) -> Tensor:
    """The pixels of a PIL image. Shape: (3, H, W), uint8."""
    if not hasattr(image, "convert"):
        raise ValueError(f"a {type(image).__name__} is no image: expected a PIL image or a tensor")
    return torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1)  # (H, W, 3) -> (3, H, W)
